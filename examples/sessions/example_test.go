package main

func Example() {
	main()
	// Output: ann is logged out everywhere, ben has 50 sessions; 100 audits found no gap
}
