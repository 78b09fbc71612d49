package main

import (
	"fmt"
	"os"
	"sync"

	"github.com/binderylog/bindery/internal/bktest/planted"
)

// chunk is how many seeds one process gets at most.
const chunk = 100

// sweep runs all seeds and prints those that fail. What was done so far goes to standard error, so that a long run that is ended
// tells how far it came.
func (s *sim) sweep() int {
	var jobs []job
	for _, layer := range []planted.Layer{planted.LayerCores, planted.LayerCluster} {
		if s.o.layer != "" && s.o.layer != string(layer) {
			continue
		}
		for at := 0; at < s.o.seeds; at += chunk {
			jobs = append(jobs, job{layer: layer, first: s.o.first + uint64(at), seeds: min(chunk, s.o.seeds-at)}) //nolint:gosec // not negative
		}
	}
	good, failed := map[planted.Layer]int{}, map[planted.Layer]int{}
	var mu sync.Mutex
	s.parallel(len(jobs), func(i int) {
		defer func() {
			mu.Lock()
			defer mu.Unlock()
			j := jobs[i]
			fmt.Fprintf(os.Stderr, "%s: seeds %d to %d are done; so far %d good, %d failed\n", j.layer, j.first, j.first+uint64(j.seeds)-1, good[j.layer], failed[j.layer]) //nolint:gosec // not negative
		}()
		for j := jobs[i]; j.seeds > 0; {
			o := s.run(j)
			mu.Lock()
			good[j.layer] += o.good
			if o.bad {
				failed[j.layer]++
				s.report(j, o)
			}
			mu.Unlock()
			if !o.bad {
				return
			}
			done := int(o.seed-j.first) + 1 //nolint:gosec // a seed of this job
			j.first, j.seeds = o.seed+1, j.seeds-done
		}
	})
	status := 0
	for _, layer := range []planted.Layer{planted.LayerCores, planted.LayerCluster} {
		if good[layer]+failed[layer] > 0 {
			fmt.Fprintf(s.out, "%s: %d seeds are good, %d failed\n", layer, good[layer], failed[layer])
		}
		if failed[layer] > 0 {
			status = 1
		}
	}
	return status
}

// report tells of a failed seed, with its history and how to see it again.
func (s *sim) report(j job, o outcome) {
	fmt.Fprint(s.out, o.text)
	fmt.Fprintf(s.out, "FAILED %s seed %d: %s\n       again: make sim-seed LAYER=%s SEED=%d\n", j.layer, o.seed, o.why, j.layer, o.seed)
}

// parallel calls fn for 0 to n-1, some at once.
func (s *sim) parallel(n int, fn func(i int)) {
	next := make(chan int)
	var wg sync.WaitGroup
	for range s.o.jobs {
		wg.Go(func() {
			for i := range next {
				fn(i)
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	wg.Wait()
}
