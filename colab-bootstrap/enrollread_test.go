package bootstrap

import (
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"colabrelay/shared/enrollment"
)

// blank is a place in a template that a value replaces.
var blank = regexp.MustCompile(`@[A-Z0-9_]+@`)

func newOffer(t testing.TB) *enrollment.Offer {
	t.Helper()
	o, err := enrollment.NewOffer()
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func TestReportsAreFoundAmongOtherOutput(t *testing.T) {
	o := newOffer(t)
	job, key := o.JobID(), o.PublicKey()
	line := func(fields string) string { return marker + `{"job": "` + job + `", ` + fields + "}" }
	answer := enrollment.Answer{URL: "https://a", InstanceID: "i", MAC: "m"}
	for name, c := range map[string]struct {
		output string
		want   Report
	}{
		"alone":           {line(`"ready": true`), Report{Ready: true}},
		"key":             {line(`"key": "` + key + `", "tunnel": "ngrok"`), Report{Key: key, Tunnel: "ngrok"}},
		"answer":          {line(`"answer": {"url": "https://a", "instance_id": "i", "mac": "m"}`), Report{Answer: &answer}},
		"the last counts": {line(`"error": "first"`) + "\n" + line(`"ready": true`), Report{Ready: true}},
		"another job's":   {line(`"ready": true`) + "\n" + marker + `{"job": "` + strings.Repeat("0", 32) + `", "error": "x"}`, Report{Ready: true}},
		"damaged ones":    {line(`"ready": true`) + "\n" + marker + "{\n" + marker + "[]\n" + marker, Report{Ready: true}},
		"a huge line":     {line(`"ready": true`) + "\n" + line(`"error": "`+strings.Repeat("x", maxMarkerBytes)+`"`), Report{Ready: true}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := ReadEnrollment(job, c.output)
			if diff := cmp.Diff(c.want, got); diff != "" || err != nil {
				t.Errorf("%v; -want +got:\n%s", err, diff)
			}
		})
	}
}

func FuzzReadEnrollment(f *testing.F) {
	job := newOffer(f).JobID()
	f.Add(marker + `{"job": "` + job + `", "ready": true}`)
	f.Add(marker + `{"job": "` + job + `", "answer": {}}` + "\n" + marker + "{}")
	f.Fuzz(func(t *testing.T, output string) {
		got, err := ReadEnrollment(job, output)
		set := 0
		for _, is := range []bool{got.Ready, got.Key != "", got.Answer != nil} {
			if is {
				set++
			}
		}
		if err == nil && (set != 1 || !strings.Contains(output, job)) || err != nil && set != 0 {
			t.Errorf("%+v, %v", got, err)
		}
	})
}

func TestCellsRefuseValuesThatPythonCouldReadAsCode(t *testing.T) {
	o := newOffer(t)
	r := Release{Releases: "https://example.com/r", Version: "v1", SHA256AMD64: digestOf("a"), SHA256ARM64: digestOf("b")}
	good := Start{Job: o.JobID(), RelayKey: o.PublicKey(), Tunnel: TunnelNgrok}
	evil := `"; import os #`
	for name, build := range map[string]func() (string, error){
		"job":             func() (string, error) { s := good; s.Job = evil; return EnrollStart(r, s) },
		"key":             func() (string, error) { s := good; s.RelayKey = evil; return EnrollStart(r, s) },
		"tunnel":          func() (string, error) { s := good; s.Tunnel = evil; return EnrollStart(r, s) },
		"release":         func() (string, error) { bad := r; bad.Version = evil; return EnrollStart(bad, good) },
		"finish's job":    func() (string, error) { return EnrollFinish(evil, "AAAA") },
		"grant":           func() (string, error) { return EnrollFinish(good.Job, evil) },
		"grant's newline": func() (string, error) { return EnrollFinish(good.Job, "AAAA\nAAAA") },
		"status' job":     func() (string, error) { return StatusCell(evil) },
		"ready's job":     func() (string, error) { return ReadyCell(evil) },
	} {
		if cell, err := build(); err == nil || cell != "" {
			t.Errorf("%s: %v, %s", name, err, cell)
		}
	}
	cell, err := EnrollStart(r, good)
	if err != nil || blank.MatchString(cell) {
		t.Errorf("blanks are left: %q, %v", blank.FindString(cell), err)
	}
}
