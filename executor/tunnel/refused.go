package tunnel

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	ngrok "golang.ngrok.com/ngrok/v2"
)

// Refused says that the tunnel can't be had, and that trying again does not
// help. Its Error is one line that says what to do.
type Refused struct {
	By          string // "ngrok", "cloudflared", "ssh server …"
	Code        string // "ERR_NGROK_105"; empty where the operator has no codes
	Explanation string // what it means and what to do, without a full stop
}

func (r *Refused) Error() string {
	if r.Code == "" {
		return fmt.Sprintf("no tunnel by %s: %s", r.By, r.Explanation)
	}
	return fmt.Sprintf("%s refused the tunnel: %s (%s)", r.By, r.Explanation, r.Code)
}

// verdict is what an answer of ngrok means for another try.
type verdict int

const (
	unsettled verdict = iota // no code: a network fault; try for ever
	busy                     // may free itself within minutes
	final                    // stays so until a person acts
)

// explanations holds the codes that people meet, from ngrok's error reference.
var explanations = map[string]struct {
	verdict verdict
	text    string
}{
	"ERR_NGROK_105":  {final, "NGROK_AUTHTOKEN does not look like an ngrok authtoken: copy it again from https://dashboard.ngrok.com/get-started/your-authtoken"},
	"ERR_NGROK_107":  {final, "NGROK_AUTHTOKEN was reset or revoked: copy the present one from https://dashboard.ngrok.com/get-started/your-authtoken"},
	"ERR_NGROK_108":  {busy, "the account has as many agents online as it may: stop one at https://dashboard.ngrok.com/agents"},
	"ERR_NGROK_120":  {final, "this executor's ngrok agent is too old for ngrok: take a newer release of colab-relay"},
	"ERR_NGROK_121":  {final, "this executor's ngrok agent is too old for ngrok: take a newer release of colab-relay"},
	"ERR_NGROK_319":  {final, "the domain is not reserved for this account: use the one at https://dashboard.ngrok.com/domains or none"},
	"ERR_NGROK_320":  {final, "the domain is reserved for another account: use the one at https://dashboard.ngrok.com/domains or none"},
	"ERR_NGROK_334":  {busy, "the address is still online from another machine: stop it at https://dashboard.ngrok.com/endpoints"},
	"ERR_NGROK_725":  {final, "the account's traffic for this month is used up: wait, upgrade, or use another tunnel"},
	"ERR_NGROK_727":  {final, "the account's requests for this month are used up: wait, upgrade, or use another tunnel"},
	"ERR_NGROK_734":  {busy, "too many requests a minute for the account"},
	"ERR_NGROK_4018": {final, "ngrok wants a verified account and its authtoken: set NGROK_AUTHTOKEN from https://dashboard.ngrok.com/get-started/your-authtoken"},
	"ERR_NGROK_9040": {final, "ngrok does not accept agents from this machine's IP address: use another machine or another tunnel"},
}

var codePattern = regexp.MustCompile(`ERR_NGROK_\d{1,5}`)

// codeOf finds ngrok's code in an error. The SDK types what Listen and Accept
// return; what it meets while it reconnects comes as plain text that holds the
// code on a line of its own.
func codeOf(err error) string {
	var typed ngrok.Error
	if errors.As(err, &typed) && codePattern.MatchString(typed.Code()) {
		return typed.Code()
	}
	if err == nil {
		return ""
	}
	return codePattern.FindString(err.Error())
}

// judge says what an error means. For a code that is not in the table, the
// hundreds decide: 1xx is about the account and its token, 3xx about the
// address asked for.
func judge(err error) (verdict, *Refused) {
	code := codeOf(err)
	if code == "" {
		return unsettled, nil
	}
	if known, ok := explanations[code]; ok {
		return known.verdict, &Refused{By: "ngrok", Code: code, Explanation: known.text}
	}
	r := &Refused{By: "ngrok", Code: code, Explanation: "see https://ngrok.com/docs/errors/" + strings.ToLower(code)}
	number := strings.TrimPrefix(code, "ERR_NGROK_")
	if len(number) == 3 && (number[0] == '1' || number[0] == '3') {
		return final, r
	}
	return busy, r
}
