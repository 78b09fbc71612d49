package journal

// Position is the sequence number of a group. It only grows over the life of a directory, also across restarts, losses
// and damage: a position that was given out is never used again for a later record.
type Position uint64

// Token is what a sink recognises its record by. The journal does not look at it.
type Token struct {
	A, B int64
	C    uint64
}

// Sink hears about the fate of appended records. Values must be comparable (pointers are).
type Sink interface {
	// JournalDone is called once per record, in the order of Append, by one goroutine at a time and with no lock held.
	// err is nil once the record is durable (in relaxed mode: written). It must not block.
	JournalDone(t Token, err error)
	// JournalFlush is called once after the last JournalDone of a group, for each sink that had one in it.
	JournalFlush()
}

// Record is what Replay returns. Payload is valid until the callback returns.
type Record struct {
	Position Position
	Segment  uint64
	Offset   int64 // of the record header in the segment file
	Kind     uint8
	Tag      uint64
	Payload  []byte
}

// Replayed is what a directory held.
type Replayed struct {
	End      Position // one past the last whole group
	Segments int
	Records  int64
	Bytes    int64    // payload bytes of the records
	Cut      *Cut     // the torn tail, nil if the journal ends cleanly
	Damage   []Damage // what was there once and can not be read back, in order
	Repaired int64    // structures whose single flipped bit was put right
	Whole    bool     // false: records may be missing that Damage can not name, so every ledger of this journal is suspect
}

// Cut is the end of a journal whose last groups were not written whole. They were never acknowledged.
type Cut struct {
	Segment  uint64
	Offset   int64    // of the first group that was cut
	Position Position // its sequence number
	Groups   int      // whole groups behind it that were cut with it
	Reason   string
}

// Damage is a place that was durable once and can not be read back.
type Damage struct {
	Segment  uint64
	Offset   int64
	Position Position
	Known    bool // a single record was hit; Kind and Tag are its own
	Kind     uint8
	Tag      uint64
	Err      error // a *corrupt.Error
}
