package terminal

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"

	"colabrelay/relay/plain"
	"colabrelay/relay/transfer"
)

// How often the progress of a transfer is written.
const (
	barEvery  = 200 * time.Millisecond // on a terminal, where the bar is redrawn
	lineEvery = 10 * time.Second       // in a log file, which keeps each line
)

// maxBarName is how much of a file's name is shown before the bar, in runes.
const maxBarName = 30

// Progress shows how far a transfer is.
type Progress interface {
	// Report takes how far the transfer is, without blocking; it fits transfer.Options.
	Report(transfer.Progress)
	// Close removes a bar, and returns once nothing more is written.
	Close()
}

// NewProgress shows a bar if out is a terminal, and otherwise writes a line now and then.
// It calls line for a description of the progress.
func NewProgress(out io.Writer, name string, line func() string) Progress {
	if Is(out) {
		return newBar(out, name, line, mpb.WithRefreshRate(barEvery))
	}
	return newLines(out, name, line)
}

// bar is one line of a terminal that is redrawn.
type bar struct {
	container *mpb.Progress
	bar       *mpb.Bar
}

func newBar(out io.Writer, name string, line func() string, options ...mpb.ContainerOption) *bar {
	container := mpb.New(append(options, mpb.WithOutput(out))...)
	// With a total of 0 the bar does not end before Close.
	b := container.New(0, mpb.BarStyle().Lbound("[").Filler("=").Tip(">").Padding(" ").Rbound("]"),
		mpb.BarFillerTrim(), // our own spaces remain when the terminal is too narrow for a bar
		mpb.PrependDecorators(decor.Name(barName(name)+" ")),
		mpb.AppendDecorators(decor.Any(func(decor.Statistics) string { return " " + plain.Line(line()) })),
	)
	return &bar{container, b}
}

func (b *bar) Report(p transfer.Progress) {
	b.bar.SetTotal(p.Total, false)
	b.bar.SetCurrent(p.Done)
}

func (b *bar) Close() {
	b.bar.Abort(true)
	b.container.Wait()
}

// lines writes a line every lineEvery.
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

func (l *lines) Report(transfer.Progress) {}

func (l *lines) Close() {
	close(l.quit)
	l.ended.Wait()
}

// barName is the last part of a path, shortened to leave room for the bar.
func barName(path string) string {
	path = strings.TrimRight(path, `/\`)
	name := []rune(plain.Line(path[strings.LastIndexAny(path, `/\`)+1:]))
	if len(name) > maxBarName {
		return string(name[:maxBarName-1]) + "…"
	}
	return string(name)
}
