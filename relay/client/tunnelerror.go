package client

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strings"

	"colabrelay/shared/auth"
	"colabrelay/shared/contract"
)

// maxErrorPage is how much of an unsigned answer is searched for its error code.
const maxErrorPage = 64 << 10

var (
	ngrokCode      = regexp.MustCompile(`ERR_NGROK_[0-9]{1,6}`)
	cloudflareCode = regexp.MustCompile(`(?i)error(?: code)?:?\s*(1[0-9]{3})\b`)
)

// tunnelError is what a tunnel's error code means.
type tunnelError struct {
	kind    Kind
	meaning string
	step    string // the next step, where the kind's usual one does not fit
}

// slower is the step where too many requests came in a minute.
const slower = "wait a minute; ngrok counts all programs that use this account or address"

// fromElsewhere is the step where the visitor's address is shut out.
const fromElsewhere = "start the executor with --allow-cidr that holds this network's public address, or leave --allow-cidr out"

// ngrokErrors holds the codes ngrok's edge answers requests with that say more than
// "something is wrong" (https://ngrok.com/docs/errors).
var ngrokErrors = map[string]tunnelError{
	"ERR_NGROK_3200": {KindTunnelOffline, "no executor is online at this address", ""},
	"ERR_NGROK_334":  {KindTunnelOffline, "the address is still held by a VM that is gone", ""},
	"ERR_NGROK_8012": {KindTunnelOffline, "the tunnel is up but the executor behind it is not", ""},
	"ERR_NGROK_725":  {KindTunnelQuota, "the account's bandwidth for this month is used up", ""},
	"ERR_NGROK_727":  {KindTunnelQuota, "the account's requests for this month are used up", ""},
	"ERR_NGROK_6008": {KindTunnelQuota, "the account is suspended for lack of payment", "mend it at https://dashboard.ngrok.com/billing, or start the executor with another account or --tunnel"},
	"ERR_NGROK_6032": {KindTunnelQuota, "the account's plan does not allow the endpoint's traffic policy", "start the executor without --allow-cidr, or take a plan that has it"},
	"ERR_NGROK_702":  {KindTunnelError, "too many connections a minute", slower},
	"ERR_NGROK_734":  {KindTunnelError, "too many requests a minute", slower},
	"ERR_NGROK_3203": {KindTunnelError, "this network's address is not let in", fromElsewhere},
	"ERR_NGROK_3205": {KindTunnelError, "this network's address is not let in", fromElsewhere},
	"ERR_NGROK_6024": {KindTunnelError, "ngrok shows its warning page instead of the executor", "something on the way drops this relay's headers: try another network"},
}

// cloudflareErrors likewise, by the code in the page.
var cloudflareErrors = map[string]tunnelError{
	"1033": {KindTunnelOffline, "no executor is online at this address", ""},
	"1016": {KindTunnelOffline, "the address leads nowhere", ""},
	"1015": {KindTunnelError, "too many requests a minute", "wait a minute"},
}

// unverified names an answer that no executor signed for this request. Nothing in it
// is trusted: it decides only which words the user reads and whether a request,
// with the same request_id, is tried again.
func (c *Client) unverified(res *http.Response, body []byte, cause error) *Error {
	e := c.classifyUnverified(res, body, cause)
	e.sent, e.Err = true, cause
	return e
}

func (c *Client) classifyUnverified(res *http.Response, body []byte, cause error) *Error {
	switch {
	case errors.Is(cause, auth.ErrDigest):
		return problem(KindBadAnswer, "the executor's answer was changed on its way", cause)
	case errors.Is(cause, auth.ErrBadSignature):
		return problem(KindBadAnswer, "the answer's signature is not the executor's", cause)
	}
	if e := recogniseTunnelError(res, body); e != nil {
		return e
	}
	host, code := c.base.Host, unsignedCode(res, body)
	switch {
	case code == contract.CodeUnauthorized && res.StatusCode == http.StatusUnauthorized:
		return problem(KindWrongSecret, fmt.Sprintf("the executor at %s does not know this computer's secret", host), cause)
	case code == contract.CodeRateLimited && res.StatusCode == http.StatusTooManyRequests:
		return problem(KindRateLimited, fmt.Sprintf("the executor at %s takes no more requests with a wrong secret from this address for a minute", host), cause)
	case res.StatusCode == http.StatusTooManyRequests:
		return problem(KindTunnelError, fmt.Sprintf("too many requests to %s", host), cause)
	case res.StatusCode == http.StatusBadGateway, res.StatusCode == http.StatusServiceUnavailable, res.StatusCode == http.StatusGatewayTimeout:
		return problem(KindTunnelError, fmt.Sprintf("a proxy at %s cannot reach the executor (HTTP %d)", host, res.StatusCode), cause)
	case res.StatusCode/100 == 3:
		return problem(KindNotExecutor, fmt.Sprintf("%s sends its visitors elsewhere (HTTP %d), which no executor does", host, res.StatusCode), cause)
	}
	return problem(KindNotExecutor, fmt.Sprintf("what answers at %s is no executor (HTTP %d, %s)", host, res.StatusCode, contentType(res)), cause)
}

// recogniseTunnelError recognises the error page of a tunnel's service; nil for any other.
func recogniseTunnelError(res *http.Response, body []byte) *Error {
	head := body[:min(len(body), maxErrorPage)]
	code := res.Header.Get("Ngrok-Error-Code")
	if code == "" && res.StatusCode >= 400 {
		code = string(ngrokCode.Find(head))
	}
	if ngrokCode.MatchString(code) {
		return named("ngrok", ngrokCode.FindString(code), ngrokErrors)
	}
	if !strings.EqualFold(res.Header.Get("Server"), "cloudflare") || res.StatusCode < 400 {
		return nil
	}
	if match := cloudflareCode.FindSubmatch(head); match != nil {
		return named("Cloudflare", string(match[1]), cloudflareErrors)
	}
	if res.StatusCode == 530 { // comes with 1033 or 1016, which the page may hide
		return named("Cloudflare", "1033", cloudflareErrors)
	}
	if res.StatusCode < 500 {
		return nil
	}
	return problem(KindTunnelError, fmt.Sprintf("Cloudflare cannot reach the executor (HTTP %d)", res.StatusCode), nil)
}

func named(service, code string, pages map[string]tunnelError) *Error {
	known, ok := pages[code]
	if !ok {
		known = tunnelError{kind: KindTunnelError, meaning: "its tunnel does not work"}
		if service == "ngrok" {
			known.step = "see https://ngrok.com/docs/errors/" + strings.ToLower(code) + "; if it stays, " + rerunCell
		}
	}
	e := problem(known.kind, fmt.Sprintf("%s says %s: %s", service, code, known.meaning), nil)
	e.Hint = cmp.Or(known.step, e.Hint)
	return e
}

// unsignedCode is the code of an error body that is not signed: an executor gives
// such answers before it knows who asks. Good for a hint, for nothing else.
func unsignedCode(res *http.Response, body []byte) contract.Code {
	if res.StatusCode < 400 || len(body) > maxErrorPage {
		return ""
	}
	var claimed contract.ErrorBody
	if json.Unmarshal(body, &claimed) != nil {
		return ""
	}
	return claimed.Error.Code
}

// contentType is the media type an answer claims, shortened for a message.
func contentType(res *http.Response) string {
	kind, _, _ := strings.Cut(res.Header.Get("Content-Type"), ";")
	if kind == "" || len(kind) > 40 {
		return "of no known type"
	}
	return fmt.Sprintf("%q", kind)
}
