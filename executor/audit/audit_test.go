package audit

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"colabrelay/shared/contract"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func config(t *testing.T) Config {
	return Config{Path: filepath.Join(t.TempDir(), "audit.log"), KeyID: "0123456789abcdef", Log: slog.New(slog.NewTextHandler(io.Discard, nil))}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func opened(t *testing.T, cfg Config) *Log {
	t.Helper()
	l, err := Open(cfg)
	must(t, err)
	return l
}

// running writes what l records until the returned function is called.
func running(l *Log) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		l.Run(ctx)
	}()
	return func() {
		cancel()
		<-ended
	}
}

// lines reads a log. Each line must be a record.
func lines(t *testing.T, path string) (records []record) {
	t.Helper()
	f, err := os.Open(path)
	must(t, err)
	defer f.Close()
	s := bufio.NewScanner(f)
	s.Buffer(nil, maxLine)
	for s.Scan() {
		var r record
		if err := json.Unmarshal(s.Bytes(), &r); err != nil {
			t.Fatalf("line %q: %v", s.Text(), err)
		}
		records = append(records, r)
	}
	return records
}

// of returns the records of one event.
func of(e event, records []record) (found []record) {
	for _, r := range records {
		if r.Event == e {
			found = append(found, r)
		}
	}
	return found
}

var from = Source{RequestID: "r1", Caller: "c1", Address: "203.0.113.7"}

func submit(id, code string) contract.Submit { return contract.Submit{RequestID: id, Code: code} }

func TestAnExecutionIsRecordedWithItsSourceWhenItIsSubmittedAndWhenItEnds(t *testing.T) {
	cfg := config(t)
	l := opened(t, cfg)
	stop := running(l)
	l.Submitted(from, submit("s1", "print(42)"))
	if got := lines(t, cfg.Path); len(of(eventSubmitted, got)) != 1 {
		t.Errorf("when Submitted returns, the file holds %+v", got)
	}
	started := time.Now()
	finished := started.Add(1500 * time.Millisecond)
	l.Ended(contract.Execution{ExecutionID: "x1", RequestID: "s1", KernelID: "k1", Status: contract.StatusFailed, StartedAt: &started, FinishedAt: &finished,
		Reason: "a reason that may quote output", Error: &contract.ExecutionError{EValue: "a value"}}, "digest")
	l.Submitted(from, submit("s2", "1"))
	l.Ended(contract.Execution{ExecutionID: "x2", RequestID: "s2", Status: contract.StatusLost}, "digest")
	stop()
	got := lines(t, cfg.Path)
	sum := sha256.Sum256([]byte("print(42)"))
	submitted, ended := of(eventSubmitted, got)[0], of(eventEnded, got)
	if submitted.CodeSHA256 != hex.EncodeToString(sum[:]) || submitted.CodeBytes != 9 || submitted.Code != "" || submitted.Source != from || submitted.KeyID != cfg.KeyID {
		t.Errorf("submitted: %+v", submitted)
	}
	if e := ended[0]; e.Outcome != contract.StatusFailed || *e.DurationMS != 1500 || e.ExecutionID != "x1" || e.SubmitID != "s1" || e.CodeSHA256 != "digest" {
		t.Errorf("ended: %+v", e)
	}
	if ended[1].DurationMS != nil {
		t.Errorf("an execution that never started has %+v", ended[1])
	}
	if first, last := got[0], got[len(got)-1]; first.Event != eventStarted || first.PID != os.Getpid() || last.Event != eventStopped {
		t.Errorf("the log begins with %+v and ends with %+v", first, last)
	}
	if raw, _ := os.ReadFile(cfg.Path); strings.Contains(string(raw), "quote output") || strings.Contains(string(raw), "a value") {
		t.Error("the log holds output")
	}
}

// Whoever carries the traffic can repeat captured requests, and must not push other records
// out of the log by that.
func TestTurnedAwayRequestsAreLimitedAndCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := config(t)
		l := opened(t, cfg)
		stop := running(l)
		const sent = 10_000
		for range sent {
			l.Request(Request{Source: from, Error: contract.CodeReplayed})
		}
		l.Request(Request{Source: from, Admitted: true})
		<-time.After(time.Minute + time.Second)
		l.Request(Request{Source: from, Error: contract.CodeReplayed})
		stop()
		got := lines(t, cfg.Path)
		requests, omitted := of(eventRequest, got), of(eventOmitted, got)
		if len(requests) != maxTurnedAway+2 || counted(omitted) != sent-maxTurnedAway {
			t.Errorf("%d requests recorded, %d omitted", len(requests), counted(omitted))
		}
		if len(omitted) != 1 {
			t.Errorf("%d lines count what was omitted", len(omitted))
		}
	})
}

func TestTheCodeOfAMinuteIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := config(t)
		cfg.Code = true
		l := opened(t, cfg)
		stop := running(l)
		const most = codePerMinute / maxCode
		for range most + 1 {
			l.Submitted(from, submit("s", strings.Repeat("x", maxCode+1)))
		}
		<-time.After(time.Minute + time.Second)
		l.Submitted(from, submit("s", "short"))
		stop()
		got := of(eventSubmitted, lines(t, cfg.Path))
		for i, r := range got[:most+1] {
			if whole := len(r.Code) == maxCode; whole != (i < most) || !r.CodeCut {
				t.Errorf("of the code of execution %d, %d bytes are recorded", i, len(r.Code))
			}
		}
		if last := got[most+1]; last.Code != "short" || last.CodeCut {
			t.Errorf("a minute later, the code is recorded as %q", last.Code)
		}
	})
}

func counted(omitted []record) (n int) {
	for _, r := range omitted {
		n += r.Count
	}
	return n
}

func TestOnlyARegularFileOfThisUserIsOpened(t *testing.T) {
	for name, test := range map[string]struct {
		make func(t *testing.T, path string) error
		want string
	}{
		"a symbolic link": {func(t *testing.T, p string) error {
			must(t, os.WriteFile(p+".target", nil, 0o600))
			return os.Symlink(p+".target", p)
		}, "symbolic link"},
		"a FIFO": {func(t *testing.T, p string) error { return syscall.Mkfifo(p, 0o600) }, "regular file"},
		"a second name": {func(t *testing.T, p string) error {
			must(t, os.WriteFile(p+".other", nil, 0o600))
			return os.Link(p+".other", p)
		}, "hard link"},
		"a log that is in use": {func(t *testing.T, p string) error {
			cfg := config(t)
			cfg.Path = p
			t.Cleanup(running(opened(t, cfg)))
			return nil
		}, "another executor"},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := config(t)
			must(t, test.make(t, cfg.Path))
			_, err := Open(cfg)
			if err == nil || !strings.Contains(err.Error(), test.want) || !strings.HasPrefix(err.Error(), fmt.Sprintf("audit log %q: ", cfg.Path)) {
				t.Errorf("the error is %v, want %q", err, test.want)
			}
			if checked := Check(cfg.Path); name != "a log that is in use" && checked == nil {
				t.Error("Check accepts it")
			}
		})
	}
}

func TestAFileThatOthersCouldReadIsMadePrivate(t *testing.T) {
	cfg := config(t)
	must(t, os.WriteFile(cfg.Path, nil, 0o644))
	must(t, Check(cfg.Path))
	running(opened(t, cfg))()
	if info, _ := os.Stat(cfg.Path); info.Mode().Perm() != 0o600 {
		t.Errorf("mode is %v", info.Mode())
	}
}

// maxLine is the length of the longest line: each byte of code may become six.
const maxLine = 6*(maxCode+maxPath+maxMethod+8*maxField) + 1024

// hostile returns a record whose every text is s.
func hostile(s string) record {
	now := time.Now()
	return record{
		Event: eventRequest, KeyID: "0123456789abcdef", Request: Request{Source: Source{s, s, s}, Method: s, Path: s, Error: contract.Code("internal"), ExecutionID: s},
		SubmitID: s, KernelID: s, CodeSHA256: s, Code: cut(s, maxCode), Cause: s, Since: &now,
	}
}

// mustBeOneLine checks what every reader of the log relies on.
func mustBeOneLine(t *testing.T, line []byte) {
	t.Helper()
	if len(line) > maxLine || bytes.IndexByte(line, '\n') != len(line)-1 {
		t.Fatalf("%d bytes, of which the first newline is at %d", len(line), bytes.IndexByte(line, '\n'))
	}
	for _, b := range line[:len(line)-1] {
		if b < ' ' || b > '~' {
			t.Fatalf("byte %#x in %q", b, line)
		}
	}
	must(t, json.Unmarshal(line, new(record)))
}

var hostileTexts = []string{
	"a\nb\r\n{\"event\":\"forged\"}\n",
	"\x1b[2J\x1b]0;title\x07\x1b[31m",
	"a\x00b",
	"a\xff\xc3(b\xed\xa0\x80",
	strings.Repeat("\x00", 1<<20),
}

func FuzzLine(f *testing.F) {
	for _, text := range hostileTexts {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) { mustBeOneLine(t, hostile(text).line()) })
}

func TestAFileThatCannotBeWrittenStopsNothingAndWhatItCostIsCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := config(t)
		dir := filepath.Dir(cfg.Path)
		var said bytes.Buffer
		cfg.Log = slog.New(slog.NewTextHandler(&said, nil))
		l := opened(t, cfg)
		defer running(l)()
		l.Ended(contract.Execution{}, "")
		must(t, os.Rename(dir, dir+".gone"))
		began := time.Now()
		for range 100 {
			l.Ended(contract.Execution{}, "")
		}
		l.Submitted(from, submit("s", "1"))
		if took := time.Since(began); took > 0 {
			t.Errorf("101 records took %v", took)
		}
		<-time.After(3 * time.Second)
		must(t, os.Rename(dir+".gone", dir))
		<-time.After(2 * time.Second) // nobody asks for anything any more
		synctest.Wait()
		if n := strings.Count(said.String(), "\n"); n != 2 || !strings.Contains(said.String(), "cannot be written") || !strings.Contains(said.String(), "written again") {
			t.Errorf("the executor's log says %s", &said)
		}
		got := lines(t, cfg.Path)
		last := got[len(got)-1]
		if len(got) != 3 || last.Event != eventOmitted || last.Count != 101 || !last.Since.Equal(began) || last.KeyID != cfg.KeyID || !strings.Contains(last.Cause, "no such file") {
			t.Errorf("the log ends with %+v", last)
		}
	})
}
