// Package rmaptest is the contract of [rmap.Store] as a suite of tests.
//
// A store passes by calling [Run] from a test of its own:
//
//	func TestContract(t *testing.T) {
//		rmaptest.Run(t, rmaptest.Subject{
//			Open: func(t *testing.T) (first, second rmap.Store) {
//				s := rmaplocal.New(rmaplocal.Options{})
//				t.Cleanup(s.Close)
//				return s, s
//			},
//			Bubble: true,
//		})
//	}
//
// The suite judges by the contract alone: it knows no store. Its tests are grouped as the contract is, one file a group.
// In every one of them two witnesses follow the map, one at each store, with a copy that they make of the changes alone.
// They demand that numbers rise by one, that each change names the one before it, that no nonce comes twice and that
// every step does something; and at the end their copies must be what the store holds.
//
// Where time must pass the suite waits until the store's own clock says that it has, so that it runs against a real
// server as well as in a bubble of testing/synctest.
//
// [RunMap] is the other half: what [rmap.Map] promises its users, over the same stores. A store that passes Run and fails
// it, or the other way round, has found a hole in the contract.
package rmaptest
