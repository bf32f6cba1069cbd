// Command latchkey is the lease broker and what people and scripts need of it:
// serve starts one, run runs a command under a lock, and the other verbs take,
// keep, show and end locks. `latchkey help` lists them.
package main

import "os"

func main() {
	os.Exit(newApp(os.Stdin, os.Stdout, os.Stderr, os.LookupEnv).run(os.Args[1:]))
}
