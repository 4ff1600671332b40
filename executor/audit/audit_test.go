package audit

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"log/slog"
	"math/bits"
	"os"
	"path/filepath"
	"strconv"
	"strings"
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
	l.Refused("s2")
	l.Ended(contract.Execution{ExecutionID: "x2", RequestID: "s2", Status: contract.StatusLost}, "digest")
	stop()
	got := lines(t, cfg.Path)
	sum := sha256.Sum256([]byte("print(42)"))
	submitted, ended := of(eventSubmitted, got)[0], of(eventEnded, got)
	if submitted.CodeSHA256 != hex.EncodeToString(sum[:]) || submitted.CodeBytes != 9 || submitted.Code != "" || submitted.Source != from || submitted.KeyID != cfg.KeyID {
		t.Errorf("submitted: %+v", submitted)
	}
	if e := ended[0]; e.Source != from || e.Outcome != contract.StatusFailed || *e.DurationMS != 1500 || e.ExecutionID != "x1" || e.SubmitID != "s1" || e.CodeSHA256 != "digest" {
		t.Errorf("ended: %+v", e)
	}
	if ended[1].Source != (Source{}) || ended[1].DurationMS != nil {
		t.Errorf("an execution of an earlier executor has %+v", ended[1])
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
		if len(omitted) > bits.Len(sent)+1 {
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

// killed stores the file as it would be if its executor was killed now.
func killed(t *testing.T, cfg *Config) {
	t.Helper()
	raw, err := os.ReadFile(cfg.Path)
	must(t, err)
	cfg.Path += ".killed"
	must(t, os.WriteFile(cfg.Path, raw, 0o600))
}

// A kill leaves no time to sum up, so the log must already have at least half of the count.
func TestAKillLosesAtMostHalfOfTheCountOfOmittedRecords(t *testing.T) {
	for _, beyond := range []int{0, 3, 1000} {
		for _, after := range []time.Duration{0, 1500 * time.Millisecond} { // until the kill
			t.Run(strconv.Itoa(beyond)+" "+after.String(), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					cfg := config(t)
					l := opened(t, cfg)
					stop := running(l)
					defer stop()
					for range maxTurnedAway + beyond {
						l.Request(Request{Source: from, Error: contract.CodeReplayed})
					}
					<-time.After(after)
					killed(t, &cfg)
					running(opened(t, cfg))()
					got := lines(t, cfg.Path)
					if n := counted(of(eventOmitted, got)); n > beyond || 2*n < beyond || after > 0 && n < beyond {
						t.Errorf("%d of %d omitted records are counted", n, beyond)
					}
					if next := of(eventStarted, got)[1]; !next.AfterUncleanEnd || !strings.Contains(next.Cause, "is missing") {
						t.Errorf("the next executor does not say that records may be missing: %+v", next)
					}
				})
			})
		}
	}
}
