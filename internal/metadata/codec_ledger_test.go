package metadata

import (
	"encoding/hex"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/binderylog/bindery/internal/protofield"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/binderylog/bindery/internal/corrupt"
	"github.com/binderylog/bindery/internal/ledger"
)

// golden is the worked example of the layout's description: E3 Qw2 Qa2, OPEN, CRC32C, password "pw", creation token 7.
func golden() *ledger.Metadata {
	return &ledger.Metadata{
		FormatVersion: 3, Ensemble: 3, WriteQuorum: 2, AckQuorum: 2, State: ledger.StateOpen, LastEntry: ledger.InvalidEntry,
		Fragments: []ledger.Fragment{{First: 0, Bookies: []ledger.BookieID{"b1:3181", "b2:3181", "b3:3181"}}},
		Digest:    ledger.DigestCRC32C, Password: []byte("pw"), HasPassword: true, CToken: 7, HasCToken: true,
	}
}

const goldenV3 = "426f6f6b69654d65746164617461466f726d617456657273696f6e09330a" + // BookieMetadataFormatVersion\t3\n
	"3c" + // 60 bytes
	"08021003180020ffffffffffffffffff012801" + // quorum 2, ensemble 3, length 0, last -1, OPEN
	"321d" + "0a0762313a33313831" + "0a0762323a33313831" + "0a0762333a33313831" + "1000" +
	"3803" + "42027077" + "4802" + "6007" // CRC32C, "pw", ack 2, token 7

const goldenV2 = "BookieMetadataFormatVersion\t2\n" + `quorumSize: 2
ensembleSize: 3
length: 0
lastEntryId: -1
state: OPEN
segment {
  ensembleMember: "b1:3181"
  ensembleMember: "b2:3181"
  ensembleMember: "b3:3181"
  firstEntryId: 0
}
digestType: CRC32C
password: "pw"
ackQuorumSize: 2
`

func TestLedgerGoldenV3(t *testing.T) {
	b, err := EncodeLedger(golden())
	require.NoError(t, err)
	require.Equal(t, goldenV3, hex.EncodeToString(b))
	m, err := DecodeLedger("k", b)
	require.NoError(t, err)
	require.Equal(t, golden(), m)
}

func TestLedgerGoldenV2(t *testing.T) {
	want := golden()
	want.FormatVersion, want.CToken, want.HasCToken = 2, 0, false
	m, err := DecodeLedger("k", []byte(goldenV2))
	require.NoError(t, err)
	require.Equal(t, want, m)
	b, err := EncodeLedger(m)
	require.NoError(t, err)
	require.Equal(t, goldenV2, string(b))
	// The version's fields are frozen: a creation token has no place.
	want.CToken, want.HasCToken = 7, true
	b, err = EncodeLedger(want)
	require.NoError(t, err)
	require.Equal(t, goldenV2, string(b))
}

func TestLedgerGoldenV1(t *testing.T) {
	const head = "BookieMetadataFormatVersion\t1\n2\n3\n0\n0\tb1:3181\tb2:3181\tb3:3181\n"
	open, err := DecodeLedger("k", []byte(head))
	require.NoError(t, err)
	require.Equal(t, &ledger.Metadata{
		FormatVersion: 1, Ensemble: 3, WriteQuorum: 2, AckQuorum: 2, State: ledger.StateOpen, LastEntry: ledger.InvalidEntry,
		Fragments: []ledger.Fragment{{First: 0, Bookies: []ledger.BookieID{"b1:3181", "b2:3181", "b3:3181"}}},
	}, open)
	recovering, err := DecodeLedger("k", []byte(head+"-102\tCLOSED"))
	require.NoError(t, err)
	require.Equal(t, ledger.StateInRecovery, recovering.State)
	require.Equal(t, ledger.InvalidEntry, recovering.LastEntry)
	const end = "BookieMetadataFormatVersion\t1\n2\n3\n4200\n0\tb1:3181\tb2:3181\tb3:3181\n7\tb4:3181\tb2:3181\tb3:3181\n41\tCLOSED"
	closed, err := DecodeLedger("k", []byte(end))
	require.NoError(t, err)
	require.Equal(t, ledger.EntryID(41), closed.LastEntry)
	require.Equal(t, int64(4200), closed.Length)
	require.Equal(t, ledger.EntryID(7), closed.Fragments[1].First)
	for text, m := range map[string]*ledger.Metadata{head: open, head + "-102\tCLOSED": recovering, end: closed} {
		b, err := EncodeLedger(m)
		require.NoError(t, err)
		require.Equal(t, text, string(b))
	}
	withDigest := golden()
	withDigest.FormatVersion = 1
	_, err = EncodeLedger(withDigest)
	require.ErrorContains(t, err, "no place")
}

// full is a record that uses everything.
func full() *ledger.Metadata {
	return &ledger.Metadata{
		FormatVersion: 3, Ensemble: 2, WriteQuorum: 2, AckQuorum: 1, State: ledger.StateClosed, Length: math.MaxInt64, LastEntry: math.MaxInt64 - 1,
		Fragments: []ledger.Fragment{
			{First: 0, Bookies: []ledger.BookieID{"a", "b"}}, {First: 5, Bookies: []ledger.BookieID{"b", "c"}}, {First: math.MaxInt64, Bookies: []ledger.BookieID{"x:1", "y:2"}},
		},
		Digest: ledger.DigestHMAC, Password: []byte("\x00\"'\\\n\t\x7f\xff"), HasPassword: true,
		CTime: 1700000000000, HasCTime: true,
		Custom: map[string][]byte{"": {}, "application": []byte("pulsar"), "z": {0, 1, 255}},
	}
}

func TestLedgerRoundTrips(t *testing.T) {
	for _, version := range []int{2, 3} {
		for name, m := range map[string]*ledger.Metadata{"golden": golden(), "full": full()} {
			m.FormatVersion = version
			if version == 2 {
				m.HasCToken, m.CToken = false, 0
			}
			t.Run(fmt.Sprintf("%s/v%d", name, version), func(t *testing.T) {
				b, err := EncodeLedger(m)
				require.NoError(t, err)
				got, err := DecodeLedger("k", b)
				require.NoError(t, err)
				require.Equal(t, m, got)
				again, err := EncodeLedger(got)
				require.NoError(t, err)
				require.Equal(t, b, again)
			})
		}
	}
	b, err := EncodeLedger(full())
	require.NoError(t, err)
	v2 := full()
	v2.FormatVersion = 2
	text, err := EncodeLedger(v2)
	require.NoError(t, err)
	require.Contains(t, string(text), `password: "\000\"\'\\\n\t\177\377"`)
	require.Contains(t, string(text), "customMetadata {\n  key: \"z\"\n  value: \"\\000\\001\\377\"\n}\n")
	require.NotContains(t, string(b), "customMetadata")
}

// TestLedgerReadersRules checks what a reader makes of fields that are there, not there, or not to be believed.
func TestLedgerReadersRules(t *testing.T) {
	t.Run("an open record's end means nothing", func(t *testing.T) {
		m := golden()
		m.State, m.LastEntry, m.Length = ledger.StateInRecovery, 99, 12345
		b, err := EncodeLedger(m)
		require.NoError(t, err)
		require.Contains(t, hex.EncodeToString(b), "180020ffffffffffffffffff012802")
		got, err := DecodeLedger("k", b)
		require.NoError(t, err)
		require.Equal(t, ledger.InvalidEntry, got.LastEntry)
		require.Zero(t, got.Length)

		got, err = DecodeLedger("k", v3(func(m []byte) []byte { return appendInt(appendInt(m, fieldLength, 777), fieldLastEntry, 5) }))
		require.NoError(t, err)
		require.Equal(t, ledger.InvalidEntry, got.LastEntry)
		require.Zero(t, got.Length)
	})
	t.Run("digest without password", func(t *testing.T) {
		m := golden()
		m.HasPassword, m.Password, m.Digest = false, nil, 0
		b, err := EncodeLedger(m)
		require.NoError(t, err)
		require.NotContains(t, hex.EncodeToString(b), "3803")
		got, err := DecodeLedger("k", append(strip(b), appendInt(nil, fieldDigest, 2)...))
		require.Error(t, err) // the length no longer fits
		require.Nil(t, got)
		msg := append(message(t, b), appendInt(nil, fieldDigest, 2)...)
		got, err = DecodeLedger("k", wrap(msg))
		require.NoError(t, err)
		require.False(t, got.HasPassword)
		require.Zero(t, got.Digest)
	})
	t.Run("empty password counts", func(t *testing.T) {
		m := golden()
		m.Password = nil
		b, err := EncodeLedger(m)
		require.NoError(t, err)
		require.Contains(t, hex.EncodeToString(b), "38034200")
		got, err := DecodeLedger("k", b)
		require.NoError(t, err)
		require.True(t, got.HasPassword)
		require.Empty(t, got.Password)
		require.Equal(t, ledger.DigestCRC32C, got.Digest)
	})
	t.Run("ack quorum defaults to write quorum", func(t *testing.T) {
		got, err := DecodeLedger("k", []byte(strings.Replace(goldenV2, "ackQuorumSize: 2\n", "", 1)))
		require.NoError(t, err)
		require.Equal(t, 2, got.AckQuorum)
	})
	t.Run("unknown fields stay", func(t *testing.T) {
		extra := appendString(nil, 99, "from the future")
		extra = protowire.AppendTag(extra, 200, protowire.Fixed64Type)
		extra = protowire.AppendFixed64(extra, 42)
		got, err := DecodeLedger("k", v3(func(m []byte) []byte { return append(extra[:len(extra):len(extra)], m...) }))
		require.NoError(t, err)
		require.Equal(t, extra, got.Unknown)
		got.State = ledger.StateInRecovery
		b, err := EncodeLedger(got)
		require.NoError(t, err)
		require.True(t, strings.HasSuffix(string(b), string(extra)))
		again, err := DecodeLedger("k", b)
		require.NoError(t, err)
		require.Equal(t, got, again)
	})
}

// message returns the message inside a version 3 record, wrap the reverse.
func message(t *testing.T, record []byte) []byte {
	m, n := protowire.ConsumeBytes(record[len(ledgerHeader)+2:])
	require.Positive(t, n)
	return m
}

func wrap(msg []byte) []byte {
	return protowire.AppendBytes([]byte(ledgerHeader+"3\n"), msg)
}

func strip(b []byte) []byte { return append([]byte(nil), b...) }

// v3 is the golden record with an edited message.
func v3(edit func([]byte) []byte) []byte { return wrap(edit(marshalLedger(golden()))) }

func TestLedgerRejections(t *testing.T) {
	drop := func(field protowire.Number) []byte {
		return v3(func(m []byte) []byte {
			var out []byte
			_ = protofield.Each(m, func(f protofield.Field) error {
				if f.Num != field {
					out = append(out, f.Raw...)
				}
				return nil
			})
			return out
		})
	}
	with := func(edit func(*ledger.Metadata)) []byte {
		m := golden()
		edit(m)
		return wrap(marshalLedger(m))
	}
	text := func(old, repl string) []byte { return []byte(strings.Replace(goldenV2, old, repl, 1)) }
	closedHead := "BookieMetadataFormatVersion\t1\n2\n3\n0\n0\tb1\tb2\tb3\n"
	for name, b := range map[string][]byte{
		"empty":                 nil,
		"header only":           []byte(ledgerHeader),
		"no version":            []byte(ledgerHeader + "\n"),
		"version letters":       []byte(ledgerHeader + "x\n"),
		"version 0":             []byte(ledgerHeader + "0\n"),
		"version 4":             []byte(ledgerHeader + "4\n"),
		"version endless":       []byte(ledgerHeader + "3333333333\n"),
		"no body":               []byte(ledgerHeader + "3\n"),
		"short body":            v3(func(m []byte) []byte { return m })[:80],
		"trailing":              append(v3(func(m []byte) []byte { return m }), 0),
		"no quorum":             drop(fieldQuorum),
		"no ensemble":           drop(fieldEnsemble),
		"no length":             drop(fieldLength),
		"no state":              drop(fieldState),
		"no segment":            drop(fieldSegment),
		"state 0":               v3(func(m []byte) []byte { return appendInt(m, fieldState, 0) }),
		"state 4":               v3(func(m []byte) []byte { return appendInt(m, fieldState, 4) }),
		"digest 9":              v3(func(m []byte) []byte { return appendInt(m, fieldDigest, 9) }),
		"quorum 0":              v3(func(m []byte) []byte { return appendInt(m, fieldQuorum, 0) }),
		"quorum negative":       v3(func(m []byte) []byte { return appendInt(m, fieldQuorum, -1) }),
		"quorum huge":           v3(func(m []byte) []byte { return appendInt(m, fieldQuorum, 1<<40) }),
		"quorum over ensemble":  v3(func(m []byte) []byte { return appendInt(m, fieldQuorum, 4) }),
		"ack over write":        v3(func(m []byte) []byte { return appendInt(m, fieldAckQuorum, 3) }),
		"wrong wire type":       v3(func(m []byte) []byte { return appendString(m, fieldQuorum, "2") }),
		"segment as number":     v3(func(m []byte) []byte { return appendInt(m, fieldSegment, 2) }),
		"torn field":            v3(func(m []byte) []byte { return append(m, 0x0a) }),
		"field 0":               v3(func(m []byte) []byte { return append(m, 0x02, 0x00) }),
		"segment without first": v3(func(m []byte) []byte { return appendBytes(m, fieldSegment, appendString(nil, fieldSegmentMember, "x")) }),
		"segment of the future": v3(func(m []byte) []byte { return appendBytes(m, fieldSegment, appendString(nil, 7, "x")) }),
		"custom of the future":  v3(func(m []byte) []byte { return appendBytes(m, fieldCustom, appendString(nil, 7, "x")) }),
		"custom twice": v3(func(m []byte) []byte {
			e := appendString(nil, 1, "k")
			return appendBytes(appendBytes(m, fieldCustom, e), fieldCustom, e)
		}),
		"custom key not UTF-8":   v3(func(m []byte) []byte { return appendBytes(m, fieldCustom, appendString(nil, 1, "\xff")) }),
		"bookie not UTF-8":       with(func(m *ledger.Metadata) { m.Fragments[0].Bookies[0] = "\xff" }),
		"bookie empty":           with(func(m *ledger.Metadata) { m.Fragments[0].Bookies[0] = "" }),
		"bookie twice":           with(func(m *ledger.Metadata) { m.Fragments[0].Bookies[0] = "b2:3181" }),
		"ensemble short":         with(func(m *ledger.Metadata) { m.Fragments[0].Bookies = m.Fragments[0].Bookies[:2] }),
		"ensemble huge":          with(func(m *ledger.Metadata) { m.Fragments[0].Bookies = make([]ledger.BookieID, 65) }),
		"first is not 0":         with(func(m *ledger.Metadata) { m.Fragments[0].First = 1 }),
		"first is negative":      with(func(m *ledger.Metadata) { m.Fragments[0].First = -1 }),
		"keys not rising":        with(func(m *ledger.Metadata) { m.Fragments = append(m.Fragments, m.Fragments[0]) }),
		"closed before fragment": with(func(m *ledger.Metadata) { m.State, m.LastEntry = ledger.StateClosed, -2 }),
		"closed, length < 0":     with(func(m *ledger.Metadata) { m.State, m.LastEntry, m.Length = ledger.StateClosed, 1, -1 }),
		"closed without end": v3(func([]byte) []byte {
			m := golden()
			m.State = ledger.StateClosed
			var out []byte
			_ = protofield.Each(marshalLedger(m), func(f protofield.Field) error {
				if f.Num != fieldLastEntry {
					out = append(out, f.Raw...)
				}
				return nil
			})
			return out
		}),
		"text: unknown field":   text("length", "breadth"),
		"text: state":           text("OPEN", "AJAR"),
		"text: number":          text("ensembleSize: 3", "ensembleSize: three"),
		"text: quoted number":   text("ensembleSize: 3", `ensembleSize: "3"`),
		"text: bare string":     text(`"pw"`, "pw"),
		"text: open string":     text(`"pw"`, `"pw`),
		"text: open message":    text("}\n", ""),
		"text: not a message":   text("segment {", "segment: 5 x {"),
		"text: deep":            text("segment {", strings.Repeat("segment {", 10)),
		"text: no colon":        text("length: 0", "length 0"),
		"text: bad escape":      text(`"pw"`, `"\q"`),
		"text: octal too large": text(`"pw"`, `"\777"`),
		"text: zero byte":       text("length", "\x00"),
		"v1: three lines":       []byte("BookieMetadataFormatVersion\t1\n2\n3\n0\n"),
		"v1: letters":           []byte("BookieMetadataFormatVersion\t1\nx\n3\n0\n0\tb1\tb2\tb3\n"),
		"v1: fragment":          []byte(closedHead + "junk\n"),
		"v1: fragment alone":    []byte(closedHead + "7\n"),
		"v1: behind the end":    []byte(closedHead + "5\tCLOSED\n9\tb1\tb2\tb3"),
		"v1: end with more":     []byte(closedHead + "5\tCLOSED\tx"),
		"v1: closed at -5":      []byte(closedHead + "-5\tCLOSED"),
	} {
		t.Run(name, func(t *testing.T) {
			_, err := DecodeLedger("/ledgers/x", b)
			var c *corrupt.Error
			require.ErrorAs(t, err, &c)
			require.Equal(t, "/ledgers/x", c.Path)
			require.NotErrorIs(t, err, ErrNoLedger)
		})
	}
	for name, edit := range map[string]func(*ledger.Metadata){
		"version": func(m *ledger.Metadata) { m.FormatVersion = 4 },
		"state":   func(m *ledger.Metadata) { m.State = 0 },
		"quorum":  func(m *ledger.Metadata) { m.AckQuorum = 0 },
	} {
		m := golden()
		edit(m)
		_, err := EncodeLedger(m)
		require.Error(t, err, name)
	}
}

// TestLedgerTextTolerance reads what Java's parser reads besides its own output.
func TestLedgerTextTolerance(t *testing.T) {
	want, err := DecodeLedger("k", []byte(goldenV2))
	require.NoError(t, err)
	for name, body := range map[string]string{
		"one line":      `quorumSize: 2 ensembleSize: 3 length: 0 lastEntryId: -1 state: OPEN segment { ensembleMember: "b1:3181" ensembleMember: "b2:3181" ensembleMember: "b3:3181" firstEntryId: 0 } digestType: CRC32C password: "pw" ackQuorumSize: 2`,
		"separators":    `quorumSize:2,ensembleSize:3;length:0,lastEntryId:- 1,state:1,segment<ensembleMember:["b1:3181",'b2:3181',"b3:" '3181'],firstEntryId:0x0>;digestType:3,password:"\160\x77",ackQuorumSize:02`,
		"comments":      "# a comment\nquorumSize: 2 # two\nensembleSize: 3\nlength: 0\nlastEntryId: -1\nstate: OPEN\nsegment: {\nensembleMember: \"b1:3181\" ensembleMember: \"b2:3181\" ensembleMember: \"b3:3181\" firstEntryId: 0}\ndigestType: CRC32C password: \"\\u0070w\"\nackQuorumSize: 2\n# end",
		"order":         `ackQuorumSize: 2 password: "p" "w" digestType: CRC32C segment { firstEntryId: 0 ensembleMember: "b1:3181" ensembleMember: "b2:3181" ensembleMember: "b3:3181" } state: OPEN lastEntryId: -1 length: 0 ensembleSize: 3 quorumSize: 2`,
		"windows lines": strings.ReplaceAll(strings.TrimPrefix(goldenV2, "BookieMetadataFormatVersion\t2\n"), "\n", "\r\n"),
	} {
		t.Run(name, func(t *testing.T) {
			got, err := DecodeLedger("k", []byte("BookieMetadataFormatVersion\t2\n"+body))
			require.NoError(t, err)
			require.Equal(t, want, got)
		})
	}
}
