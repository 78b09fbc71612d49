package ledger

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
)

// Fragment is a run of entries that one ensemble stores. It ends before the next fragment's First; the last one ends
// at the last entry of a closed ledger (and may then be empty) or is still growing.
type Fragment struct {
	First   EntryID
	Bookies []BookieID // exactly Metadata.Ensemble, all different; the order gives the index for striping
}

// Clone returns a copy that shares nothing with f.
func (f Fragment) Clone() Fragment {
	return Fragment{First: f.First, Bookies: slices.Clone(f.Bookies)}
}

// Metadata is the record of one ledger in the metadata store. Every change of it is a compare-and-set on the whole
// record. LastEntry and Length mean something only in a closed record; Validate and the cores ignore them otherwise.
type Metadata struct {
	FormatVersion int // encoding of the stored record: 1, 2 or 3; new records use 3

	Ensemble, WriteQuorum, AckQuorum int
	State                            State
	Length                           int64   // payload bytes of all entries, when closed
	LastEntry                        EntryID // when closed; InvalidEntry for an empty ledger
	Fragments                        []Fragment

	Digest      DigestType
	Password    []byte
	HasPassword bool // the record carries digest type and password

	CTime    int64 // creation time, milliseconds since 1970
	HasCTime bool

	Custom map[string][]byte

	CToken    int64 // creation token: tells a creator whose reply was lost that the record is its own
	HasCToken bool

	Unknown []byte // fields of newer versions, kept as they were
}

// ErrBadMetadata is returned for a record that no correct client can have written.
var ErrBadMetadata = errors.New("ledger: impossible metadata record")

// Quorum returns the three sizes of the record.
func (m *Metadata) Quorum() Quorum {
	return Quorum{Ensemble: m.Ensemble, Write: m.WriteQuorum, Ack: m.AckQuorum}
}

// Clone returns a deep copy.
func (m *Metadata) Clone() *Metadata {
	if m == nil {
		return nil
	}
	c := *m
	c.Fragments = make([]Fragment, len(m.Fragments))
	for i, f := range m.Fragments {
		c.Fragments[i] = f.Clone()
	}
	c.Password = bytes.Clone(m.Password)
	c.Unknown = bytes.Clone(m.Unknown)
	if m.Custom != nil {
		c.Custom = make(map[string][]byte, len(m.Custom))
		for k, v := range m.Custom {
			c.Custom[k] = bytes.Clone(v)
		}
	}
	return &c
}

// Validate checks the rules that every record obeys in every state: possible quorum sizes, fragments that start at 0
// and strictly increase, ensembles of the right size without repetition, and in a closed record an end that is not
// before the last fragment's start. The last fragment of a closed ledger may be empty (First = LastEntry+1).
func (m *Metadata) Validate() error {
	if err := m.Quorum().Validate(); err != nil {
		return fmt.Errorf("%w: %w", ErrBadMetadata, err)
	}
	if !m.State.Valid() {
		return fmt.Errorf("%w: state %d", ErrBadMetadata, m.State)
	}
	if len(m.Fragments) == 0 {
		return fmt.Errorf("%w: no fragment", ErrBadMetadata)
	}
	for i, f := range m.Fragments {
		switch {
		case i == 0 && f.First != 0:
			return fmt.Errorf("%w: first fragment starts at %d, not at 0", ErrBadMetadata, f.First)
		case i > 0 && f.First <= m.Fragments[i-1].First:
			return fmt.Errorf("%w: fragment %d starts at %d, not after %d", ErrBadMetadata, i, f.First, m.Fragments[i-1].First)
		case len(f.Bookies) != m.Ensemble:
			return fmt.Errorf("%w: fragment at %d has %d bookies, not %d", ErrBadMetadata, f.First, len(f.Bookies), m.Ensemble)
		}
		for j, b := range f.Bookies {
			if b == "" {
				return fmt.Errorf("%w: fragment at %d has an empty bookie id", ErrBadMetadata, f.First)
			}
			if slices.Contains(f.Bookies[:j], b) {
				return fmt.Errorf("%w: fragment at %d names %s twice", ErrBadMetadata, f.First, b)
			}
		}
	}
	if m.State == StateClosed {
		if m.LastEntry < InvalidEntry || m.Length < 0 {
			return fmt.Errorf("%w: closed at entry %d with %d bytes", ErrBadMetadata, m.LastEntry, m.Length)
		}
		if last := m.Last().First; last > m.LastEntry+1 {
			return fmt.Errorf("%w: closed at entry %d, before the last fragment's start %d", ErrBadMetadata, m.LastEntry, last)
		}
	}
	return nil
}

// Last returns the last fragment. The record must have one (Validate).
func (m *Metadata) Last() Fragment { return m.Fragments[len(m.Fragments)-1] }

// FragmentOf returns the fragment that stores entry e, by index. Entries past the end of a closed ledger, too, map to
// the last fragment: it is for the caller to know the end.
func (m *Metadata) FragmentOf(e EntryID) int {
	i, found := slices.BinarySearchFunc(m.Fragments, e, func(f Fragment, e EntryID) int {
		switch {
		case f.First < e:
			return -1
		case f.First > e:
			return 1
		}
		return 0
	})
	if !found {
		i--
	}
	return max(i, 0)
}

// EnsembleOf returns the ensemble that stores entry e. The slice belongs to the record.
func (m *Metadata) EnsembleOf(e EntryID) []BookieID { return m.Fragments[m.FragmentOf(e)].Bookies }

// Names reports whether any fragment of the record names bookie b.
func (m *Metadata) Names(b BookieID) bool {
	for i := range m.Fragments {
		if slices.Contains(m.Fragments[i].Bookies, b) {
			return true
		}
	}
	return false
}
