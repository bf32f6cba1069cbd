/**
 * Leases with fencing tokens from a Latchkey broker: only one of your processes does a thing at a
 * time, and it is told when it may not any more.
 *
 * <p>{@link io.github.latchkeygo.Client} is where to begin: {@code call} runs a body while a lease
 * is held, {@code acquire} returns the {@link io.github.latchkeygo.Hold} itself. A loss is told,
 * with a {@link io.github.latchkeygo.LeaseLostException} that says why, before the broker can give
 * the key to another; the token of a hold covers what no clock can, if what the lease protects
 * refuses a lower one than it has seen.
 *
 * <pre>{@code
 * try (Client client = Client.connect()) {
 *   client.call("invoices/2026-11", hold -> {
 *     System.out.println("mine, with token " + hold.token());
 *     return null;
 *   });
 * }
 * }</pre>
 *
 * <p>A client is one session on one connection, which is made again when it breaks. It may be used
 * by any number of threads. All exceptions are unchecked, below {@link
 * io.github.latchkeygo.LatchkeyException}.
 */
package io.github.latchkeygo;
