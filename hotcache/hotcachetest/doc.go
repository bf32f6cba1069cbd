// Package hotcachetest is the contract of [hotcache.Node] as a suite of tests.
//
// A node passes by calling [Run] from a test of its own:
//
//	func TestContract(t *testing.T) {
//		hotcachetest.Run(t, hotcachetest.Subject{
//			Open: func(t *testing.T, rules hotcache.Rules) (first, second hotcache.Node) {
//				n := hotcache.NewEmbedded(rules)
//				return n, n
//			},
//			Bubble: true,
//		})
//	}
//
// The suite judges by the contract alone: it knows no node but the embedded one, whose answers are those of the pure
// core, and to which it compares others. Its tests are grouped by what is asked of a node, one file a group. In every
// one of them two witnesses follow the node, one from each process: they demand that numbers rise by one, that each
// invalidation names the one before it, and that they are told one thing at a time.
package hotcachetest
