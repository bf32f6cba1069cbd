package main

func Example() {
	main()
	// Output: 4 raced for the deploy lock, 1 won and said so once
}
