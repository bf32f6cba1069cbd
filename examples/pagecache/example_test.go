package main

func Example() {
	main()
	// Output: 400 fetches, 10 renders
}
