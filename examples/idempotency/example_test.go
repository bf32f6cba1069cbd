package main

func Example() {
	main()
	// Output: 30 orders were sent 240 times, and each was charged once
}
