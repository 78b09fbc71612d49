package advice

import (
	"slices"

	hdr "github.com/HdrHistogram/hdrhistogram-go"

	"github.com/binderylog/bindery/journal"
	"github.com/binderylog/bindery/tools/iobench/result"
)

// PipelineModel takes cells of the chapter on pipelines, those of several slices merged: what a write takes alone, and what
// it takes while another one is under way. ok is false if a size has no figures for both.
func PipelineModel(taken ...[]result.Cell) (m Model, ok bool) {
	m = Model{Crowd: 1, InFlight: 2, GroupMax: journal.DefaultGroupBytesMax, Cores: 1}
	alone, beside := map[int]*hdr.Histogram{}, map[int]*hdr.Histogram{}
	for _, cells := range taken {
		for i := range cells {
			c := &cells[i]
			if c.Latency == nil {
				continue
			}
			h, err := c.Latency.Decode()
			if err != nil {
				return m, false
			}
			to := alone
			if c.Depth > 1 {
				to = beside
			}
			if to[c.BlockBytes] == nil {
				to[c.BlockBytes] = result.NewHistogram()
				if c.Depth <= 1 {
					m.Sizes = append(m.Sizes, c.BlockBytes)
				}
			}
			to[c.BlockBytes].Merge(h)
		}
	}
	slices.Sort(m.Sizes)
	for _, size := range m.Sizes {
		if beside[size] == nil {
			return m, false
		}
		m.Times, m.Beside = append(m.Times, alone[size]), append(m.Beside, beside[size])
	}
	return m, len(m.Sizes) > 0
}
