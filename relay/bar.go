package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"
	"golang.org/x/term"

	"colabrelay/relay/plain"
	"colabrelay/relay/transfer"
)

// How often a person hears of a transfer.
const (
	barEvery  = 200 * time.Millisecond // on a terminal
	lineEvery = 10 * time.Second       // in a log file, where each line stays
)

// maxBarName is the most of a file's name that stands before the bar, in runes.
const maxBarName = 30

// display shows a transfer to a person while it goes on.
type display interface {
	// report is told how far it is, and does not block.
	report(transfer.Progress)
	// close takes the display away, and returns once nothing more is written.
	close()
}

// newDisplay is a bar on a terminal, and lines on anything else. line tells where
// the transfer stands.
func newDisplay(out io.Writer, name string, line func() string) display {
	if f, ok := out.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		return newBar(out, name, line, mpb.WithRefreshRate(barEvery))
	}
	return newLines(out, name, line)
}

// bar is one line of a terminal that is drawn again and again.
type bar struct {
	all *mpb.Progress
	one *mpb.Bar
}

func newBar(out io.Writer, name string, line func() string, options ...mpb.ContainerOption) *bar {
	all := mpb.New(append(options, mpb.WithOutput(out))...)
	// A total of 0 is one that is not known yet, and a bar that ends only with close.
	one := all.New(0, mpb.BarStyle().Lbound("[").Filler("=").Tip(">").Padding(" ").Rbound("]"),
		mpb.BarFillerTrim(), // the spaces are ours, so that a terminal too narrow for a bar has them too
		mpb.PrependDecorators(decor.Name(barName(name)+" ")),
		mpb.AppendDecorators(decor.Any(func(decor.Statistics) string { return " " + plain.Line(line()) })),
	)
	return &bar{all, one}
}

func (b *bar) report(p transfer.Progress) {
	b.one.SetTotal(p.Total, false)
	b.one.SetCurrent(p.Done)
}

func (b *bar) close() {
	b.one.Abort(true)
	b.all.Wait()
}

// lines writes a line now and then.
type lines struct {
	quit  chan struct{}
	ended sync.WaitGroup
}

func newLines(out io.Writer, name string, line func() string) *lines {
	l := &lines{quit: make(chan struct{})}
	l.ended.Go(func() {
		tick := time.NewTicker(lineEvery)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				fmt.Fprintf(out, "%s: %s\n", barName(name), plain.Line(line()))
			case <-l.quit:
				return
			}
		}
	})
	return l
}

func (l *lines) report(transfer.Progress) {}

func (l *lines) close() {
	close(l.quit)
	l.ended.Wait()
}

// barName is the last part of a path, short enough to leave room for the bar.
func barName(path string) string {
	path = strings.TrimRight(path, `/\`)
	name := []rune(plain.Line(path[strings.LastIndexAny(path, `/\`)+1:]))
	if len(name) > maxBarName {
		return string(name[:maxBarName-1]) + "…"
	}
	return string(name)
}
