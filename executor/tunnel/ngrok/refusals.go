package ngrok

import (
	"errors"
	"regexp"
	"strings"

	sdk "golang.ngrok.com/ngrok/v2"

	"colabrelay/executor/tunnel"
)

// explanation is what a code of ngrok means for a person.
type explanation struct {
	temporary bool // it may pass within minutes; others last until a person acts
	text      string
}

// explanations holds the codes that people meet, from ngrok's error reference.
var explanations = map[string]explanation{
	"ERR_NGROK_105":  {false, "NGROK_AUTHTOKEN does not look like an ngrok authtoken: copy it again from https://dashboard.ngrok.com/get-started/your-authtoken"},
	"ERR_NGROK_107":  {false, "NGROK_AUTHTOKEN was reset or revoked: copy the current one from https://dashboard.ngrok.com/get-started/your-authtoken"},
	"ERR_NGROK_108":  {true, "the account has reached its limit of online agents: stop one at https://dashboard.ngrok.com/agents"},
	"ERR_NGROK_120":  {false, "this executor's ngrok agent is too old for ngrok: use a newer release of colab-relay"},
	"ERR_NGROK_121":  {false, "this executor's ngrok agent is too old for ngrok: use a newer release of colab-relay"},
	"ERR_NGROK_319":  {false, "the domain is not reserved for this account: use the one at https://dashboard.ngrok.com/domains or none"},
	"ERR_NGROK_320":  {false, "the domain is reserved for another account: use the one at https://dashboard.ngrok.com/domains or none"},
	"ERR_NGROK_334":  {true, "the address is still online from another machine: stop it at https://dashboard.ngrok.com/endpoints"},
	"ERR_NGROK_725":  {false, "the account has used up its traffic for this month: wait, upgrade, or use another tunnel"},
	"ERR_NGROK_727":  {false, "the account has used up its requests for this month: wait, upgrade, or use another tunnel"},
	"ERR_NGROK_734":  {true, "the account makes too many requests per minute"},
	"ERR_NGROK_4018": {false, "ngrok requires a verified account and its authtoken: set NGROK_AUTHTOKEN from https://dashboard.ngrok.com/get-started/your-authtoken"},
	"ERR_NGROK_9040": {false, "ngrok does not accept agents from this machine's IP address: use another machine or another tunnel"},
}

var codePattern = regexp.MustCompile(`ERR_NGROK_\d{1,5}`)

// codeOf returns ngrok's code in an error, or "". The SDK types what Listen and
// Accept return; errors from reconnecting are plain text that holds the code on
// a separate line.
func codeOf(err error) string {
	var typed sdk.Error
	if errors.As(err, &typed) && codePattern.MatchString(typed.Code()) {
		return typed.Code()
	}
	if err == nil {
		return ""
	}
	return codePattern.FindString(err.Error())
}

// refusal returns what ngrok refused, or nil for an error without a code, such
// as a network fault. Codes that are not in the table are judged by their range:
// 1xx is about the account and its token and 3xx about the requested address,
// and both are final.
func refusal(err error) *tunnel.Refused {
	code := codeOf(err)
	if code == "" {
		return nil
	}
	e, ok := explanations[code]
	if !ok {
		number := strings.TrimPrefix(code, "ERR_NGROK_")
		e.temporary = len(number) != 3 || number[0] != '1' && number[0] != '3'
		e.text = "see https://ngrok.com/docs/errors/" + strings.ToLower(code)
	}
	return &tunnel.Refused{By: "ngrok", Code: code, Explanation: e.text, Temporary: e.temporary}
}
