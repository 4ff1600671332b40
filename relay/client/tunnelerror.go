package client

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"strings"

	"colabrelay/shared/auth"
	"colabrelay/shared/contract"
)

// maxErrorPage bounds how much of an unsigned answer is searched for an error code.
const maxErrorPage = 64 << 10

var (
	ngrokCode      = regexp.MustCompile(`ERR_NGROK_[0-9]{1,6}`)
	cloudflareCode = regexp.MustCompile(`(?i)error(?: code)?:?\s*(1[0-9]{3})\b`)
)

// tunnelError is the meaning of a tunnel's error code.
type tunnelError struct {
	kind    Kind
	meaning string
	hint    string // empty for the kind's usual one
}

// slower is the hint after too many requests in a minute.
const slower = "Wait a minute; ngrok counts all programs that use this account or address."

// allowAddress is the hint when --allow-cidr excludes the visitor's address.
const allowAddress = "Start the executor with an --allow-cidr that contains this network's public address, or without --allow-cidr."

// ngrokErrors are the codes in answers of ngrok's edge that say more than that something is
// wrong (https://ngrok.com/docs/errors).
var ngrokErrors = map[string]tunnelError{
	"ERR_NGROK_3200": {KindTunnelOffline, "no executor is online at this address", ""},
	"ERR_NGROK_334":  {KindTunnelOffline, "the address still belongs to a VM that is gone", ""},
	"ERR_NGROK_8012": {KindTunnelOffline, "the tunnel is up but the executor behind it is not", ""},
	"ERR_NGROK_725":  {KindTunnelQuota, "the account's bandwidth for this month is used up", ""},
	"ERR_NGROK_727":  {KindTunnelQuota, "the account's requests for this month are used up", ""},
	"ERR_NGROK_6008": {KindTunnelQuota, "the account is suspended for lack of payment", "Correct this at https://dashboard.ngrok.com/billing, or start the executor with another account or --tunnel."},
	"ERR_NGROK_6032": {KindTunnelQuota, "the account's plan does not allow the endpoint's traffic policy", "Start the executor without --allow-cidr, or use a plan that includes it."},
	"ERR_NGROK_702":  {KindTunnelError, "too many connections a minute", slower},
	"ERR_NGROK_734":  {KindTunnelError, "too many requests a minute", slower},
	"ERR_NGROK_3203": {KindTunnelError, "this network's address is not allowed", allowAddress},
	"ERR_NGROK_3205": {KindTunnelError, "this network's address is not allowed", allowAddress},
	"ERR_NGROK_6024": {KindTunnelError, "ngrok shows its warning page instead of the executor", "Something between this computer and ngrok drops the relay's headers: try another network."},
}

// cloudflareErrors are the same for Cloudflare, by the code in the page.
var cloudflareErrors = map[string]tunnelError{
	"1033": {KindTunnelOffline, "no executor is online at this address", ""},
	"1016": {KindTunnelOffline, "the address leads nowhere", ""},
	"1015": {KindTunnelError, "too many requests a minute", "Wait a minute."},
}

// unverified returns the error for an answer that no executor signed for this request.
// Nothing in the answer is trusted: it decides only which words the user reads, and whether
// the request is tried again with the same request_id.
func (c *Client) unverified(res *http.Response, body []byte, cause error) *Error {
	e := c.classifyUnverified(res, body, cause)
	e.sent, e.Err = true, cause
	return e
}

func (c *Client) classifyUnverified(res *http.Response, body []byte, cause error) *Error {
	if errors.Is(cause, auth.ErrBadSignature) {
		return problem(KindBadAnswer, "the answer's signature is not the executor's", cause)
	}
	if e := recogniseTunnelError(res, body); e != nil {
		return e
	}
	host, code := c.base.Host, unsignedCode(res, body)
	known, proxy := !c.current().IsZero(), c.proxy()
	proxied := proxy != "" && c.base.Scheme == "http" // with https, a proxy answers CONNECT only
	switch {
	case code == contract.CodeUnauthorized && res.StatusCode == http.StatusUnauthorized:
		return problem(KindWrongSecret, fmt.Sprintf("the executor at %s does not know this computer's secret", host), cause)
	case code == contract.CodeRateLimited && res.StatusCode == http.StatusTooManyRequests:
		return problem(KindRateLimited, fmt.Sprintf("the executor at %s accepts no more requests with a wrong secret from this address for a minute", host), cause)
	case res.StatusCode == http.StatusTooManyRequests:
		return problem(KindTunnelError, fmt.Sprintf("too many requests to %s", host), cause)
	case res.StatusCode == http.StatusRequestEntityTooLarge && res.Request != nil:
		return c.tooLarge(res.Request.ContentLength)
	case proxied && (res.StatusCode == http.StatusProxyAuthRequired || !known && res.StatusCode >= 400):
		return refusedByProxy(proxy, res.StatusCode, host, cause)
	case res.StatusCode == http.StatusGatewayTimeout, res.StatusCode == http.StatusRequestTimeout:
		e := problem(KindTunnelError, fmt.Sprintf("a proxy at %s gave up waiting (HTTP %d)", host, res.StatusCode), cause)
		e.gaveUp = res.StatusCode == http.StatusGatewayTimeout
		return e
	case res.StatusCode == http.StatusBadGateway, res.StatusCode == http.StatusServiceUnavailable:
		return problem(KindTunnelError, fmt.Sprintf("a proxy at %s cannot reach the executor (HTTP %d)", host, res.StatusCode), cause)
	case known && (res.StatusCode/100 != 2 || contentType(res) != `"application/json"`): // no login page is an answer of success in JSON
		return problem(KindIntercepted, fmt.Sprintf("something else answers at %s, where the executor answered before (HTTP %d, %s)", host, res.StatusCode, contentType(res)), cause)
	case res.StatusCode == http.StatusNetworkAuthenticationRequired:
		return problem(KindNotExecutor, fmt.Sprintf("this network asks for a login before it lets the relay reach %s (HTTP 511)", host), cause)
	case res.StatusCode/100 == 3:
		return problem(KindNotExecutor, fmt.Sprintf("%s redirects (HTTP %d), which no executor does", host, res.StatusCode), cause)
	case res.StatusCode/100 == 2 && len(body) == 0:
		return problemWithHint(KindBadAnswer, fmt.Sprintf("the answer from %s is empty (HTTP %d): it is that of a proxy, or of a tunnel without an executor", host, res.StatusCode),
			"Try again in a minute. If the error persists, "+startAgain, cause)
	}
	return problem(KindNotExecutor, fmt.Sprintf("the program that answers at %s is not an executor (HTTP %d, %s)", host, res.StatusCode, contentType(res)), cause)
}

// recogniseTunnelError returns the error for an error page of a tunnel's service; nil for any
// other answer.
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
	if res.StatusCode == 530 { // accompanies 1033 or 1016, which the page may not show
		return named("Cloudflare", "1033", cloudflareErrors)
	}
	if res.StatusCode < 500 {
		return nil
	}
	e := problem(KindTunnelError, fmt.Sprintf("Cloudflare cannot reach the executor (HTTP %d)", res.StatusCode), nil)
	e.gaveUp = res.StatusCode == http.StatusGatewayTimeout || res.StatusCode == 524
	return e
}

func named(service, code string, pages map[string]tunnelError) *Error {
	known, ok := pages[code]
	if !ok {
		known = tunnelError{kind: KindTunnelError, meaning: "its tunnel does not work"}
		if service == "ngrok" {
			known.hint = "See https://ngrok.com/docs/errors/" + strings.ToLower(code) + ". If the error persists, " + startAgain
		}
	}
	e := problem(known.kind, fmt.Sprintf("%s says %s: %s", service, code, known.meaning), nil)
	e.Hint = cmp.Or(known.hint, e.Hint)
	return e
}

// unsignedCode returns the code of an unsigned error body. An executor sends these before it
// has verified the request. The code may only choose a message and a hint.
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

// contentType returns the media type that an answer claims, for a message.
func contentType(res *http.Response) string {
	kind, _, _ := strings.Cut(res.Header.Get("Content-Type"), ";")
	quoted := strconv.Quote(kind) // an unusual byte takes four
	if kind == "" || len(quoted) > 42 {
		return "of unknown type"
	}
	return quoted
}
