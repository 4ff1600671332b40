package tools

import (
	"strings"
	"testing"

	"colabrelay/relay/pairing"
	"colabrelay/shared/contract"
)

// A user of an extension has a field for the pairing string, and no command.
func TestInAnExtensionHintsNameItsFieldAndNoCommandForPairing(t *testing.T) {
	store := pairing.Open(t.TempDir())
	none := func(string) string { return "" }
	_, notPaired := pairing.Resolve("", none, store)
	_, unknown := pairing.Resolve("lab", none, store)
	_, damaged := pairing.Resolve("", func(name string) string { return map[string]string{"COLAB_PAIRING": "colab-relay:x"}[name] }, store)
	const field = `"Pairing $1 string" in the extension's settings`
	for name, p := range map[string]*Problem{
		"not paired":   resolveProblem(notPaired),
		"unknown name": resolveProblem(unknown),
		"damaged":      badSettings([]error{damaged}),
		"unauthorized": problemOf(&contract.Error{Code: contract.CodeUnauthorized}),
	} {
		t.Run(name, func(t *testing.T) {
			got := inExtension("Pairing $1 string", p.copy())
			text := got.Message + "\n" + got.Hint
			for _, command := range []string{"`colab-relay", "COLAB_PAIRING", "env block"} {
				if strings.Contains(text, command) {
					t.Errorf("%q is in\n%s", command, text)
				}
			}
			if !strings.Contains(text, field) {
				t.Errorf("the field is not in\n%s", text)
			}
			if same := inExtension("", p.copy()); *same != *p {
				t.Errorf("without a field, it became %+v", same)
			}
		})
	}
}
