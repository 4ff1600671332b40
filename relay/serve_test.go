package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"strings"
	"syscall"
	"testing"

	"colabrelay/relay/cli"
	"colabrelay/relay/config/configtest"
	"colabrelay/relay/terminal"
	"colabrelay/shared/within"
)

// relay runs the program and returns its exit code and output.
func relay(t *testing.T, getenv func(string) string, stdin string, args ...string) (code int, out, errs string) {
	t.Helper()
	var o, e bytes.Buffer
	ctx, cancel := context.WithTimeout(t.Context(), within.Limit)
	defer cancel()
	code = run(ctx, append([]string{cli.CommandName}, args...), getenv, terminal.Streams{In: strings.NewReader(stdin), Out: &o, Err: &e})
	return code, o.String(), e.String()
}

func TestServeStartsWithWrongSettingsAndEndsWithStdin(t *testing.T) {
	configtest.Home(t)
	for _, args := range [][]string{{}, {"serve"}} {
		inR, inW := io.Pipe()
		outR, outW := io.Pipe()
		var errs bytes.Buffer
		ended := make(chan int, 1)
		go func() {
			ended <- run(t.Context(), append([]string{cli.CommandName}, args...), configtest.Environ("RELAY_HOLD", "soon"), terminal.Streams{In: inR, Out: outW, Err: &errs})
			outW.Close()
		}()
		lines := bufio.NewScanner(outR)
		ask := func(line string) string {
			io.WriteString(inW, line+"\n")
			if !lines.Scan() {
				t.Fatal("stdout ended")
			}
			return lines.Text()
		}
		ask(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`)
		got := ask(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"check_colab_connection","arguments":{}}}`)
		if !strings.Contains(got, "not_configured") || !strings.Contains(got, "RELAY_HOLD") || !strings.Contains(got, `"isError":true`) {
			t.Errorf("%s", got)
		}
		inW.Close()
		if code := <-ended; code != 0 {
			t.Errorf("exit code %d: %s", code, errs.String())
		}
	}
}

// Each failing call is logged, and a host may start the relay with a pipe that it never reads.
func TestAHostThatNeverReadsStderrGetsEveryAnswer(t *testing.T) {
	configtest.Home(t)
	inR, inW := io.Pipe()
	outR, outW := io.Pipe()
	errsR, errsW := io.Pipe()
	defer errsR.Close() // ends the write that waits
	ended := make(chan int, 1)
	go func() {
		ended <- run(t.Context(), []string{cli.CommandName}, configtest.Environ("RELAY_HOLD", "soon"), terminal.Streams{In: inR, Out: outW, Err: errsW})
		outW.Close()
	}()
	answers := make(chan string)
	go func() {
		for lines := bufio.NewScanner(outR); lines.Scan(); {
			answers <- lines.Text()
		}
	}()
	for id := range 480 {
		fmt.Fprintf(inW, `{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"check_colab_connection","arguments":{}}}`+"\n", id)
		within.Receive(t, "an answer", answers)
	}
	inW.Close()
	if code := within.Receive(t, "the relay's end", ended); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// full is a disk without room.
type full struct{}

func (full) Write([]byte) (int, error) { return 0, syscall.ENOSPC }

func TestACommandWhoseOutputIsNotWrittenFails(t *testing.T) {
	configtest.Home(t)
	const ping = `{"jsonrpc":"2.0","id":1,"method":"ping"}` + "\n"
	for _, args := range [][]string{{"serve"}, {"help"}, {"guide"}, {"version"}, {"run", "--help"}} {
		var errs bytes.Buffer
		code := run(t.Context(), append([]string{cli.CommandName}, args...), configtest.Environ(), terminal.Streams{In: strings.NewReader(ping), Out: full{}, Err: &errs})
		if code != cli.ExitFailure || !strings.Contains(errs.String(), syscall.ENOSPC.Error()) {
			t.Errorf("%q exits with %d: %q", args, code, errs.String())
		}
	}
}
