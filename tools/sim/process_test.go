package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestListen(t *testing.T) {
	o, stuck := listen(strings.NewReader("sim: seed 7 begins\nnoise\nsim: seed 7 is good: 3 acknowledged\nsim: seed 8 begins\nwhat happened\nsim: seed 8 failed: I4: lost\nmore\n"), func() {}, 7)
	require.False(t, stuck)
	require.Equal(t, outcome{good: 1, bad: true, seed: 8, why: "I4: lost", text: "what happened\nmore\n"}, o)

	o, stuck = listen(strings.NewReader("sim: seed 1 begins\npanic: oh\n"), func() {}, 1)
	require.False(t, stuck)
	require.Equal(t, outcome{seed: 1, text: "panic: oh\n"}, o, "that the process ended is for its caller to see")
}

func TestParallel(t *testing.T) {
	s := &sim{o: options{jobs: 2}}
	sum := make(chan int, 10)
	s.parallel(10, func(i int) { sum <- i })
	total := 0
	for range 10 {
		total += <-sum
	}
	require.Equal(t, 45, total, "every job runs once")
}
