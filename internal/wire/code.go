package wire

import "strconv"

// Code is the outcome of a request, in the numbering of V2 response packets. V3 has other numbers for the same outcomes;
// Status and CodeOfStatus translate.
type Code int32

// The codes of the protocol.
const (
	OK           Code = 0
	NoLedger     Code = 1
	NoEntry      Code = 2
	BadReq       Code = 100
	IO           Code = 101
	UA           Code = 102 // wrong or missing master key, or not authenticated
	BadVersion   Code = 103
	Fenced       Code = 104
	ReadOnly     Code = 105
	TooMany      Code = 106
	UnknownState Code = 107 // the bookie may have lost the answer (limbo); never sent on V2, see V2
)

// codes lists each code with its V3 status and its name, in the order of the V2 numbers.
var codes = [...]struct {
	code   Code
	status int32
	name   string
}{
	{OK, 0, "EOK"},
	{NoLedger, 402, "ENOLEDGER"},
	{NoEntry, 403, "ENOENTRY"},
	{BadReq, 404, "EBADREQ"},
	{IO, 501, "EIO"},
	{UA, 502, "EUA"},
	{BadVersion, 503, "EBADVERSION"},
	{Fenced, 504, "EFENCED"},
	{ReadOnly, 505, "EREADONLY"},
	{TooMany, 506, "ETOOMANYREQUESTS"},
	{UnknownState, 507, "EUNKNOWNLEDGERSTATE"},
}

func codeIndex(c Code) int {
	switch {
	case c >= OK && c <= NoEntry:
		return int(c)
	case c >= BadReq && c <= UnknownState:
		return int(c-BadReq) + 3
	}
	return -1
}

// Status returns the V3 number of c. A code outside the list is an I/O error for the peer.
func (c Code) Status() int32 {
	if i := codeIndex(c); i >= 0 {
		return codes[i].status
	}
	return IO.Status()
}

// V2 returns the code that may be sent on V2. Java's V2 client closes the connection on numbers it does not know, which
// include UnknownState; they become IO.
func (c Code) V2() Code {
	if c == UnknownState || codeIndex(c) < 0 {
		return IO
	}
	return c
}

// CodeOfStatus returns the code of a V3 status. An unknown status is kept as a number that is no code of the list.
func CodeOfStatus(s int32) Code {
	for i := range codes {
		if codes[i].status == s {
			return codes[i].code
		}
	}
	if codeIndex(Code(s)) >= 0 {
		return IO // a V2 number in a V3 packet means nothing
	}
	return Code(s)
}

// Listed reports whether c is one of the protocol's codes.
func (c Code) Listed() bool { return codeIndex(c) >= 0 }

// String returns the protocol's name of c.
func (c Code) String() string {
	if i := codeIndex(c); i >= 0 {
		return codes[i].name
	}
	return "code " + strconv.Itoa(int(c))
}
