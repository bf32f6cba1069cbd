package main

func Example() {
	main()
	// Output: 5 clients sent 600 requests, the 190 within their rate were served; the 3 that were idle are forgotten
}
