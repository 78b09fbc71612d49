// Package explore checks the protocol by brute force: it drives the cores of package ledger, the ones that the running
// client and the running bookie use, through every interleaving of a small world, and looks at the invariants in every
// state that it reaches.
//
// Worlds with a tier have the cores of package offload/protocol, too: workers, a release, an owner who deletes, the janitor.
//
// A world is an initial state with budgets: so many entries, so many lost answers, wiped bookies, power cuts, unknown
// metadata outcomes. Within the budgets everything may happen in any order: messages are an unordered bag, a message
// that is never delivered is a lost one, a request whose client gave up may still arrive.
//
//	Spec   ->  space  ->  search (breadth first, shortest history)   or   walk (one random history per seed)
//	world      states     table of 128-bit fingerprints
//
// A state is a fixed-size vector without pointers. Its parts (a client with its core, a bookie, a record, a message)
// are interned: equal parts are one number. Since a core is a pure function of its encoded state, one step of one core
// on one event is computed once, on the real core, and remembered. Replay drives the cores without that memory.
//
// Goroutines: Search starts Options.Workers of them and joins them before it returns.
// Limits: 6 bookies, 4 clients, 4 entries, 48 messages in flight; a world that needs more ends with an error.
package explore
