package main

func Example() {
	main()
	// Output: 40000 snapshots of mode and notice, none of them mixed
}
