package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

// samples are the times that one way of doing something took.
type samples []time.Duration

// quantile returns the sample below which a share q of all are.
func (s samples) quantile(q float64) time.Duration {
	sorted := slices.Sorted(slices.Values(s))
	return sorted[min(int(q*float64(len(sorted))), len(sorted)-1)]
}

func (s samples) median() time.Duration { return s.quantile(0.5) }

// over returns the ratio of the medians.
func (s samples) over(base samples) float64 { return float64(s.median()) / float64(base.median()) }

// way is one of several ways to do the same thing.
type way struct {
	name  string
	do    func(context.Context) error
	after func() error // not timed; nil: nothing
}

// timing is how much inTurn measures.
type timing struct {
	n       int // samples of each way
	warmUps int // calls of each way before them
}

// inTurn measures ways in turn, in a random order each round, so that the machine's noise
// and what a way leaves behind affect all of them. The samples are in the ways' order.
func (t timing) inTurn(ctx context.Context, ways ...way) ([]samples, error) {
	random := rand.New(rand.NewPCG(1, 2))
	all := make([]samples, len(ways))
	for round := range t.warmUps + t.n {
		for _, i := range random.Perm(len(ways)) {
			took, err := timed(func() error { return ways[i].do(ctx) })
			if err == nil && ways[i].after != nil {
				err = ways[i].after()
			}
			if err != nil {
				return nil, fmt.Errorf("%s: %w", ways[i].name, err)
			}
			if round >= t.warmUps {
				all[i] = append(all[i], took)
			}
		}
	}
	return all, nil
}

func timed(f func() error) (time.Duration, error) {
	began := time.Now()
	err := f()
	return time.Since(began), err
}

// noise returns bytes that do not compress.
func noise(n int) []byte {
	p := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{}).Read(p)
	return p
}
