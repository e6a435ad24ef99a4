#!/bin/sh
# The specification as curl commands, with the status that each must return:
#   sh specification.sh http://localhost:3000 TOKEN NAME:PASSWORD
# Run it against a server that has just started. It deletes the to-dos that it creates.
url=${1:?usage: specification.sh URL TOKEN NAME:PASSWORD}
token=$2
user=$3
failed=0
json='Content-Type: application/json'

# check STATUS TEXT CURL_OPTION…: sends a request, and expects this status and this text in the body.
check() {
  status=$1 text=$2
  shift 2
  response=$(curl -sS -g -w '\n%{http_code}' "$@")
  body=$(printf '%s\n' "$response" | sed '$d')
  if [ "$(printf '%s\n' "$response" | tail -n 1)" = "$status" ] &&
    { [ -z "$text" ] || printf '%s' "$body" | grep -qF -- "$text"; }; then
    printf 'ok      %s %s\n' "$status" "$1"
  else
    failed=$((failed + 1))
    printf 'FAILED  %s\n        expected %s %s\n        got      %s\n' "$1" "$status" "$text" "$response"
  fi
}

# Section 4: create, list, get, update and delete
check 200 '[' "$url/api/todos"
check 201 'buy milk' "$url/api/todos" -H "$json" -d '{"title":"buy milk"}'
id=$(printf '%s' "$body" | sed -E 's/.*"id": *([0-9]+).*/\1/')
check 200 'buy milk' "$url/api/todos"
check 200 'buy milk' "$url/api/todos/$id"
check 200 'true' "$url/api/todos/$id" -X PATCH -H "$json" -d '{"done":true}'
check 200 'false' "$url/api/todos/$id" -X PATCH -H "$json" -d '{"done":false}'
check 204 '' "$url/api/todos/$id" -X DELETE

# Section 7: an absent id gets 404, a malformed id gets 400, and an invalid title gets 422
check 404 '' "$url/api/todos/$id"
check 404 '' "$url/api/todos/$id" -X PATCH -H "$json" -d '{"done":true}'
check 404 '' "$url/api/todos/$id" -X DELETE
check 400 '' "$url/api/todos/abc"
check 400 '' "$url/api/todos/18446744073709551616"
check 422 'must not be empty' "$url/api/todos" -H "$json" -d '{"title":"   "}'
check 422 'must be at most 120 characters' "$url/api/todos" -H "$json" -d "{\"title\":\"$(printf '%0121d' 0)\"}"

# Section 5: the protected routes
check 401 '' "$url/api/whoami"
check 401 '' "$url/api/whoami" -H 'Authorization: Bearer unknown'
check 200 '' "$url/api/whoami" -H "Authorization: Bearer $token"
check 200 "${user%%:*}" "$url/admin/" -u "$user"

[ "$failed" -eq 0 ]
