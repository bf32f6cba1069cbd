// Package leasetest is the contract of [lease.Service] as a suite of tests.
//
// A service passes by calling [Run] from a test of its own:
//
//	func TestContract(t *testing.T) {
//		leasetest.Run(t, func(t *testing.T) leasetest.Harness {
//			s, err := leaselocal.Open(leaselocal.Options{})
//			if err != nil {
//				t.Fatal(err)
//			}
//			return leasetest.Harness{Service: s}
//		})
//	}
//
// Every test runs in a bubble of testing/synctest, so that hours of leases pass
// in no time and "nothing happened" can be told from "not yet". A service with a
// connection inside must therefore be opened over in-memory pipes.
//
// The suite judges by the contract alone: it knows no service. Tests are grouped
// as the contract is, one file a group, and each says which promise it checks.
//
// # What it covers of lockd
//
// Comments name, as "lockd gap n", what an earlier lock engine got wrong, so
// that none of it comes back:
//
//	 1  a token is unique in the whole service               tokens/AcrossKeys
//	 2  tokens rise across restarts                          restart/TokensRise
//	 3  tokens rise when what they came from is forgotten    tokens/IdleKeys, restart/TokensRise
//	 5  an old end of a hold never ends the next one         tokens/StaleRelease, ttl/ReleaseThenRegrant
//	 6  a renewal that races an expiry                       ttl/RenewAtTheEnd
//	 7  many leases due at one moment end together           ttl/ManyDueAtOnce
//	 8  every lease that is due ends                         ttl/ManyDueAtOnce
//	 9  a close answers everybody                            goodbye/AnswersWaiters
//	12  every holder of a key has a deadline of its own      ttl/SharedHoldersEndApart
//	13  nothing is granted after a close, a second is safe   goodbye/RefusesNew, goodbye/Twice
//	14  a restart gives a lease its full ttl again           restart/FullTTL
//	16  the holder is told of a loss                         group loss
//	17  request ids, bounded waits, cancel, repeats          groups ids and outcomes
//
// The others are inside the engine and the journal, where they are tested:
// 4 (what a failed write does), 10 and 11 (nothing is kept per idle key),
// 15 (clocks), 18 (one log).
package leasetest
