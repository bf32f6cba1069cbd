package main

func Example() {
	main()
	// Output: 4 senders told of 400 people, and their questions came after what they had told
}
