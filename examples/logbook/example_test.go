package main

func Example() {
	main()
	// Output: 3 workers appended 600 lines, each its own in order
}
