// Package redisfeed keeps one connection to a Redis on which many channels are subscribed, and tells each subscription
// when it stands, what came, and when something may have been missed. It is for copies that must know how old they
// are: a [Hub] lets its users send ordinary commands over the very connection that the messages come on. Redis answers
// in order and messages are handed over by the goroutine that reads the answers, so when an answer is there, everything
// that was published before it was computed has been handed over.
//
// A subscription is in one of two states. It is down until the server has confirmed it on the connection of the day,
// and up from there until that connection ends. What is published while it is up is handed over, in order, or Down is
// called. The connection is trusted only as long as it answers: a PING must come back in time, whatever the socket says.
//
// One goroutine owns the connection: it dials, subscribes, asks for the answer to a PING, and dials again after a
// pause with full jitter. Receivers are called by the goroutine of the client that reads the connection, and by the
// owner for Down.
//
// It needs RESP3 (Redis 6 and later), because before that a subscribed connection takes no other commands, and a
// server that is not part of a Redis Cluster, where a publication and the data are not in one order.
package redisfeed
