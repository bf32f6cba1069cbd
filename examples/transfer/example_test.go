package main

func Example() {
	main()
	// Output: 4000 transfers kept the total of 400; a payment of 401 was made when there was enough
}
