package main

func Example() {
	main()
	// Output: 40 customers raced for 10 seats: whoever has one has its neighbour, nobody has a third
}
