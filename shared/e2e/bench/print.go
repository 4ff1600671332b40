package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"colabrelay/executor/jupyter"
	"colabrelay/relay/client"
	"colabrelay/shared/contract"
)

// stamps prints the time now and then. Its arguments are the number of lines, the shortest
// and longest pause between two, in seconds, and whether print flushes. If it does not,
// ipykernel flushes every 0.2 s.
const stamps = `import random, time
for _ in range(%d):
    time.sleep(random.uniform(%g, %g))
    print(time.time(), flush=%s)
`

// printReadTrip is the round trip of the distant reader.
const printReadTrip = 100 * time.Millisecond

// printDelay measures how long a line of a long run takes from its print to three readers of
// the same run: a Jupyter client, client.Follow, and client.Follow at a distance. All clocks
// are this machine's.
func printDelay(ctx context.Context, b *bench) ([]row, error) {
	readers, err := b.printReaders(ctx)
	if err != nil {
		return nil, err
	}
	var rows []row
	for _, r := range []struct {
		what        string
		lines       int
		least, most float64
		flush       string
	}{
		{"print", 40, 0.55, 1.05, "False"},
		{"print(…, flush=True)", 40, 0.55, 1.05, "True"},
		{"20 lines a second, flushed", 200, 0.03, 0.07, "True"},
	} {
		d, err := readers.read(ctx, r.lines, fmt.Sprintf(stamps, r.lines, r.least, r.most, r.flush))
		if err != nil {
			return rows, err
		}
		rows = append(rows, d.rows(r.what, r.least > 0.5)...)
	}
	return rows, nil
}

// rows describes one run. Lines that follow each other closely have no target: Follow then
// spaces its requests out.
func (d printDelays) rows(what string, hasTarget bool) []row {
	beyond := d.far.less(printReadTrip / 2)
	near := latency(what+", to client.Follow", d.near)
	far := latency(fmt.Sprintf("%s, to client.Follow at %s, without the network's %s", what, short(printReadTrip), short(printReadTrip/2)), beyond)
	near.note = fmt.Sprintf("%d lines, %d requests", len(d.near), d.requests)
	if hasTarget {
		near, far = near.comparedTo("Jupyter client", d.near, d.bare), far.comparedTo("Jupyter client", beyond, d.bare)
		near.target = within(d.near.median(), 60*time.Millisecond)
		far.target = within(beyond.median(), 60*time.Millisecond)
	}
	return []row{latency(what+", to a Jupyter client", d.bare), near, far}
}

// less returns the samples minus d.
func (s samples) less(d time.Duration) samples {
	var rest samples
	for _, t := range s {
		rest = append(rest, t-d)
	}
	return rest
}

// printReaders read the same run.
type printReaders struct {
	bare *jupyter.Client
	near *countingReader
	far  client.ExecutionReader
	run  *client.Client
}

func (b *bench) printReaders(ctx context.Context) (r printReaders, err error) {
	e, err := b.executor(ctx, b.memory)
	if err != nil {
		return r, err
	}
	if r.run, err = b.client(e.Ready.LocalURL); err != nil {
		return r, err
	}
	_, url, err := b.wire(e.Ready.LocalURL, printReadTrip)
	if err != nil {
		return r, err
	}
	if r.far, err = b.client(url); err != nil {
		return r, err
	}
	r.near = &countingReader{ExecutionReader: r.run}
	r.bare, err = b.kernelOf(ctx, e)
	return r, err
}

// countingReader counts requests.
type countingReader struct {
	client.ExecutionReader
	requests int
}

func (c *countingReader) Execution(ctx context.Context, id string, offset int64, wait time.Duration, maxBytes int64) (contract.Execution, error) {
	c.requests++
	return c.ExecutionReader.Execution(ctx, id, offset, wait, maxBytes)
}

// printDelays are the delays of all lines of one run to each reader.
type printDelays struct {
	bare, near, far samples
	requests        int
}

func (r printReaders) read(ctx context.Context, lines int, code string) (d printDelays, err error) {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	var bareErr, nearErr, farErr error
	var reading sync.WaitGroup
	reading.Go(func() { d.bare, bareErr = bareStamps(ctx, r.bare, lines) })
	r.near.requests = 0
	e, err := r.run.Submit(ctx, contract.Submit{Code: code})
	if err != nil {
		cancel()
	}
	reading.Go(func() { d.near, nearErr = followStamps(ctx, r.near, e) })
	reading.Go(func() { d.far, farErr = followStamps(ctx, r.far, e) })
	reading.Wait()
	for _, failed := range []error{err, bareErr, nearErr, farErr} {
		if failed != nil {
			return d, failed
		}
	}
	if len(d.near) != lines || len(d.far) != lines {
		return d, fmt.Errorf("%d and %d lines arrived of %d", len(d.near), len(d.far), lines)
	}
	d.requests = r.near.requests
	return d, nil
}

// followStamps reads an execution with client.Follow.
func followStamps(ctx context.Context, vm client.ExecutionReader, e contract.Execution) (delays samples, err error) {
	_, followErr := client.Follow(ctx, vm, e, client.FollowOptions{Visit: func(e contract.Execution) bool {
		now := time.Now()
		for _, event := range e.Events {
			if err == nil && event.Type == contract.EventStream {
				err = delays.add(now, event.Text)
			}
		}
		return true
	}})
	if err == nil {
		err = followErr
	}
	return delays, err
}

// bareStamps reads so many lines from a kernel that another client has given the code.
func bareStamps(ctx context.Context, kernel *jupyter.Client, lines int) (delays samples, err error) {
	for err == nil && len(delays) < lines {
		var m *jupyter.Message
		if m, err = kernel.Receive(ctx); err != nil {
			break
		}
		now := time.Now()
		if m.Header.MsgType != jupyter.MsgStream || !bytes.Contains(m.Content, []byte("stdout")) {
			continue
		}
		var stream struct{ Text string }
		if err = json.Unmarshal(m.Content, &stream); err == nil {
			err = delays.add(now, stream.Text)
		}
	}
	return delays, err
}

// add appends the age of each stamp in a text of whole lines.
func (s *samples) add(now time.Time, text string) error {
	for _, line := range strings.Fields(text) {
		printed, err := strconv.ParseFloat(line, 64)
		if err != nil {
			return err
		}
		*s = append(*s, now.Sub(time.UnixMicro(int64(printed*1e6))))
	}
	return nil
}
