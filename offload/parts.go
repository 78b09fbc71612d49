package offload

import (
	"cmp"
	"slices"

	"github.com/binderylog/bindery/internal/corrupt"
)

// parts are ranges of an object that are fetched with as few requests as they need.
type parts struct {
	get    func(offset int64, b []byte) error
	wanted []sectionRef
	have   []fetchedPart // in order of offset
}

type fetchedPart struct {
	offset int64
	b      []byte
}

// newParts begins with the front of an object, which is there already.
func newParts(front []byte, get func(int64, []byte) error) *parts {
	return &parts{get: get, have: []fetchedPart{{0, front}}}
}

func (p *parts) want(s ...sectionRef) { p.wanted = append(p.wanted, s...) }

// fetch gets what is wanted.
func (p *parts) fetch(path string) error {
	slices.SortFunc(p.wanted, func(a, b sectionRef) int { return cmp.Compare(a.offset, b.offset) })
	total := int64(0)
	for i := 0; i < len(p.wanted); {
		start, end := p.wanted[i].offset, p.wanted[i].end()
		for i++; i < len(p.wanted) && p.wanted[i].offset <= end+manifestGap; i++ {
			end = max(end, p.wanted[i].end())
		}
		last := &p.have[len(p.have)-1]
		held := last.offset + int64(len(last.b))
		if end <= held {
			continue
		}
		if total += end - start; total > manifestPartsMax {
			return corrupt.Errorf(path, start, "manifest directory", "more than %d bytes beside the index", manifestPartsMax)
		}
		if start <= held { // goes on where the last one ends
			b := make([]byte, end-last.offset)
			n := copy(b, last.b)
			if err := p.get(last.offset+int64(n), b[n:]); err != nil {
				return err
			}
			last.b = b
			continue
		}
		b := make([]byte, end-start)
		if err := p.get(start, b); err != nil {
			return err
		}
		p.have = append(p.have, fetchedPart{start, b})
	}
	return nil
}

// of returns the bytes of a range that was wanted.
func (p *parts) of(s sectionRef) []byte {
	for _, h := range p.have {
		if s.offset >= h.offset && s.end() <= h.offset+int64(len(h.b)) {
			return h.b[s.offset-h.offset : s.end()-h.offset]
		}
	}
	return nil
}
