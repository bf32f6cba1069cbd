package main

func Example() {
	main()
	// Output: 5 clients sent 500 requests, the 150 within their rate were served
}
