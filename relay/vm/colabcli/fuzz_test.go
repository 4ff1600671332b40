package colabcli

import (
	"strings"
	"testing"

	"colabrelay/relay/vm"
)

// FuzzRows reads any output of `colab sessions`. A list is whole, or there is none.
func FuzzRows(f *testing.F) {
	row := "[a] gpu-1 | Hardware: T4 | Shape: Standard | Variant: GPU\n"
	for _, seed := range []string{row, noRows, "[colab] hello\n" + row + row, "[?] x | Hardware: CPU | Shape: High-RAM | Variant: -\r\n", noRows + "\n" + row, "[] ] x | Hardware: \x1b | Shape: Standard | Variant: \x1b"} {
		f.Add(seed, "", false)
	}
	f.Add(row, noCredentials, true)
	f.Fuzz(func(t *testing.T, stdout, stderr string, dropped bool) {
		rows, err := parseRows(result{stdout: stdout, stderr: stderr, dropped: dropped})
		if err != nil {
			wantShort(t, err)
			return
		}
		if len(rows) > vm.MaxMachines || dropped || len(rows) != strings.Count(stdout, "| Hardware: ") && !strings.Contains(stdout, "[colab] ") {
			t.Errorf("%q is a list of %d VMs", stdout, len(rows))
		}
		for _, r := range rows {
			if r.endpoint == "" || r.spec.Accelerator == vm.CPU {
				t.Errorf("%q has the VM %+v", stdout, r)
			}
		}
	})
}

// FuzzOutcome reads any output of `colab exec`, of which the VM writes a part.
func FuzzOutcome(f *testing.F) {
	const mark = "colab-relay-X:"
	for _, seed := range []string{
		`text` + mark + `{"output":"YQ==","name":"","value":""}` + "\nmore", mark + `{"output":"YQ==","name":"E","value":"v"}`,
		mark + "\n" + mark + "{}", mark + `{"output":"!"}`, mark + "null", "",
	} {
		f.Add(seed, "ColabRequestError: Failed to issue request POST https://x?token=1: Bad Request\n", 1)
	}
	f.Fuzz(func(t *testing.T, stdout, stderr string, code int) {
		out, found := outcomeIn(stdout, mark)
		if found && !strings.Contains(stdout, mark) {
			t.Errorf("%q has an outcome", stdout)
		}
		if text, err := out.result(); len(text) > vm.MaxOutput || err != nil && len(err.Error()) > 3*maxValue {
			t.Errorf("%d bytes, %v", len(text), err)
		}
		wantShort(t, refusal(create, result{code: code, stdout: stdout, stderr: stderr}))
	})
}

// wantShort checks an error that shows what another program printed.
func wantShort(t *testing.T, err error) {
	t.Helper()
	if len(err.Error()) > 2000 || strings.ContainsAny(err.Error(), "\x1b\r\u009b") {
		t.Errorf("%q", err.Error())
	}
}
