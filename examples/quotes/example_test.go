package main

func Example() {
	main()
	// Output: 3 suppliers worked at once, the best price is 110
}
