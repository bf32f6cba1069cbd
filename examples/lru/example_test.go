package main

func Example() {
	main()
	// Output: 4 pages for 3 places: the one that was not used for longest is gone
}
