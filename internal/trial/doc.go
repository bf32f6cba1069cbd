// Package trial has what the tests of several packages do alike: plant a defect to
// show that a test can fail, tell a hang from an answer, and end a function in
// every way there is. Only tests import it.
package trial
