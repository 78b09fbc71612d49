// Package wire speaks BookKeeper's bookie protocol in both of its forms: bytes in, structs out.
//
// A frame is a 4-byte big-endian length N and a packet of N bytes. A packet is either binary (protocol V2) or a protobuf
// message (V3):
//
//	V2  +---------+--------+-----------+----------------------------------+
//	    | version | opcode | flags(2B) | fixed big-endian fields, then a   |
//	    |  (1B)   |  (1B)  |           | body that runs to the packet's end|
//	    +---------+--------+-----------+----------------------------------+
//	    (version 0: the whole first word is the opcode and there are no flags)
//	V3  Request or Response in proto2 coding; the first byte is 0x0A, the tag of the header.
//
// A server tells them apart by the first byte of a packet; once a connection has sent a V2 packet it stays V2 (Decoder).
// One Request and one Response type serve both forms; Proto says which one a value came from or goes to.
//
// Invariants:
//   - Every length is checked against the packet before it is used; nothing is allocated in proportion to a length that
//     the peer merely claims.
//   - Decoding copies no bytes: Key, Body and the like alias the packet and live as long as its buffer does.
//   - Decoding an add or a read, and encoding any answer into a buffer with room, allocates nothing.
//   - A malformed packet yields *FormatError and never a panic. A V3 packet whose header can be read but whose body can
//     not be served (unknown operation, missing message or field) decodes, with Op == OpUnsupported or Invalid set, so
//     that it can be answered instead of hung up on.
//   - A V3 response carries the sub-message of its operation with all required fields, also when Code is not OK.
//
// The package opens no socket, keeps no clock and starts no goroutine; it imports neither net nor os.
package wire
