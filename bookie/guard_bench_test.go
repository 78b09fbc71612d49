package bookie

import (
	"fmt"
	"testing"
	"time"

	"github.com/binderylog/bindery/bench/guard/iocalls"
)

// BenchmarkGuard adds over loopback, in batches that go out in one write and are answered before the next one. What it
// allocates and how often it calls the system, bookie and peer together, are held against a recorded run (bench/guard).
func BenchmarkGuard(b *testing.B) {
	for _, batch := range []int{1, 16} {
		b.Run(fmt.Sprintf("entry=1k/batch=%d", batch), func(b *testing.B) {
			bk := diskBookie(b, func(o *Options) { o.Journal.SegmentSize = 16 << 20 })
			for { // zeroing segments ahead is not counted
				if st := bk.eng.journals[0].Stats(); st.Spares > 0 && st.SparesZeroed == st.Spares {
					break
				}
				time.Sleep(10 * time.Millisecond)
			}
			l := newLoad(b, bk, 1, 1<<10)
			if err := l.run(8*batch, batch); err != nil {
				b.Fatal(err)
			}
			iocalls.Measure(b, func() {
				if err := l.run(b.N, batch); err != nil {
					b.Fatal(err)
				}
			})
		})
	}
}
