// Package proctest gives tests processes of their own: programs that can be killed
// and frozen, and copies of the test binary that play a part and talk to the test in
// lines. None outlives its test; on Linux, not even when the test is killed.
//
// A package that wants copies of itself says in its TestMain which parts there are:
//
//	func TestMain(m *testing.M) {
//		proctest.Play(map[string]proctest.Part{"writer": writer})
//		goleak.VerifyTestMain(m)
//	}
//
//	func writer(stage *proctest.Stage, args []string) error {
//		for {
//			line, err := stage.Hear()
//			if err != nil {
//				return nil // the test wants no more
//			}
//			stage.Say("done " + line)
//		}
//	}
//
// and a test starts one with proctest.Fork(t, "writer", addr).
package proctest
