package main

func Example() {
	main()
	// Output: 10 different words in 800 lines, "the" 1600 times
}
