package journal

import (
	"fmt"
	"testing"

	"github.com/binderylog/bindery/bench/guard/iocalls"
	"github.com/binderylog/bindery/internal/vfs"
)

// guardSink hands the number of finished records of each group on.
type guardSink struct {
	n    int
	done chan int
	err  error
}

func (s *guardSink) JournalDone(_ Token, err error) {
	s.n++
	if err != nil {
		s.err = err
	}
}

func (s *guardSink) JournalFlush() {
	s.done <- s.n
	s.n = 0
}

// BenchmarkGuard appends batches of records, each durable before the next one. What it allocates and how often it calls the
// system are held against a recorded run (bench/guard), so both must not depend on how fast the machine is.
func BenchmarkGuard(b *testing.B) {
	for _, batch := range []int{1, 16} {
		b.Run(fmt.Sprintf("entry=1k/batch=%d", batch), func(b *testing.B) {
			j, err := Open(vfs.OS(), benchDir(b), Options{IO: IODSync, SegmentSize: 16 << 20})
			if err == nil {
				err = j.Start()
			}
			if err != nil {
				b.Fatal(err)
			}
			defer j.Close()
			warmUp(b, j)
			s := &guardSink{done: make(chan int, 16)}
			data := make([]byte, 1<<10)
			iocalls.Measure(b, func() {
				for n := 0; n < b.N; n += batch {
					for range batch {
						if _, err := j.Append(1, 1, data, s, Token{}); err != nil {
							b.Fatal(err)
						}
					}
					j.Commit()
					for got := 0; got < batch; {
						got += <-s.done
					}
				}
			})
			if s.err != nil {
				b.Fatal(s.err)
			}
		})
	}
}
