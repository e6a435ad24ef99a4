# The service on Perl's core modules, one request after another. The kit's system tests check that the kit accepts it.
use strict;
use warnings;
use Digest::SHA qw(sha256);
use IO::Socket::INET;
use JSON::PP;
use MIME::Base64 qw(decode_base64);

my $json = JSON::PP->new->utf8->canonical->allow_nonref;
my $token_hash = sha256($ENV{TOKEN});
my ($user) = split /:/, $ENV{USER_PASSWORD}, 2;
my $user_hash = sha256($ENV{USER_PASSWORD});
my (%todos, $last_id);
$last_id = 0;

sub todo_json { my ($t) = @_; return {id => $t->{id} + 0, title => $t->{title}, done => $t->{done} ? JSON::PP::true : JSON::PP::false} }
sub answer { my ($status, $value) = @_; return ($status, 'application/json', $json->encode($value)) }

sub field {
  my ($body, $name) = @_;
  my $value = eval { $json->decode($body) };
  return ref $value eq 'HASH' ? $value->{$name} : undef;
}

# JSON::PP decodes strings to plain scalars, and numbers to scalars with a numeric flag.
sub is_string { my ($value) = @_; return defined $value && !ref $value && $json->encode($value) =~ /^"/ }

sub collection {
  my ($method, $body) = @_;
  return answer(200, [map { todo_json($todos{$_}) } sort { $a <=> $b } keys %todos]) if $method eq 'GET';
  return answer(405, {error => 'method not allowed'}) if $method ne 'POST';
  my $title = field($body, 'title');
  return answer(422, {errors => [{field => 'title', message => 'must be a string'}]}) unless is_string($title);
  my @messages;
  push @messages, 'must not be empty' if $title !~ /\S/;
  push @messages, 'must be at most 120 characters' if length $title > 120;
  return answer(422, {errors => [map { {field => 'title', message => $_} } @messages]}) if @messages;
  $last_id++;
  $todos{$last_id} = {id => $last_id, title => $title, done => 0};
  return answer(201, todo_json($todos{$last_id}));
}

sub todo {
  my ($method, $id, $body) = @_;
  my $digits = $id =~ s/^0+(?=.)//r;
  my $is_id = $id =~ /\A[0-9]+\z/ && (length $digits < 20 || (length $digits == 20 && $digits le '18446744073709551615'));
  return answer(400, {error => 'invalid id'}) unless $is_id;
  my $todo = $todos{$digits} or return answer(404, {error => 'no such to-do'});
  return answer(200, todo_json($todo)) if $method eq 'GET';
  if ($method eq 'DELETE') { delete $todos{$digits}; return (204, undef, '') }
  return answer(405, {error => 'method not allowed'}) if $method ne 'PATCH';
  my $done = field($body, 'done');
  return answer(400, {error => 'done must be a boolean'}) unless JSON::PP::is_bool($done);
  $todo->{done} = $done ? 1 : 0;
  return answer(200, todo_json($todo));
}

sub route {
  my ($method, $path, $authorization, $body) = @_;
  if ($path =~ m{\A/api/whoami(?:/|\z)}) {
    my ($token) = $authorization =~ /\ABearer +(\S+)\z/i;
    return (401, 'text/plain', 'Unauthorized') if !defined $token || sha256($token) ne $token_hash;
    return $path eq '/api/whoami' ? (200, 'text/plain', 'alice') : (404, 'text/plain', 'Not found');
  }
  if ($path =~ m{\A/admin/}) {
    my ($encoded) = $authorization =~ /\ABasic +(\S+)\z/i;
    return (401, 'text/plain', 'Unauthorized') if !defined $encoded || sha256(decode_base64($encoded)) ne $user_hash;
    return $path eq '/admin/' ? (200, 'text/plain', "Hello, $user!") : (404, 'text/plain', 'Not found');
  }
  return collection($method, $body) if $path eq '/api/todos';
  return todo($method, $1, $body) if $path =~ m{\A/api/todos/([^/]+)\z};
  return answer(404, {error => 'not found'});
}

my $server = IO::Socket::INET->new(LocalAddr => '127.0.0.1', Listen => 128, ReuseAddr => 1) or die $!;
$| = 1;
printf qq({"url":"http://127.0.0.1:%d"}\n), $server->sockport;
while (my $client = $server->accept) {
  my $line = <$client> // next;
  my ($method, $path) = $line =~ m{\A(\S+) ([^ ?]+)};
  my %headers;
  while (defined(my $header = <$client>)) {
    last if $header =~ /\A\r?\n\z/;
    $headers{lc $1} = $2 if $header =~ /\A([^:]+):[ \t]*(.*?)[ \t]*\r?\n\z/;
  }
  my $body = '';
  read $client, $body, $headers{'content-length'} if $headers{'content-length'};
  my ($status, $type, $text) = route($method, $path, $headers{authorization} // '', $body);
  my $scheme = $path =~ m{\A/admin} ? 'Basic realm="admin"' : 'Bearer';
  my $head = "HTTP/1.1 $status Status\r\nConnection: close\r\n";
  $head .= "WWW-Authenticate: $scheme\r\n" if $status == 401;
  $head .= "Content-Type: $type\r\nContent-Length: " . length($text) . "\r\n" if defined $type;
  print $client "$head\r\n", $method eq 'HEAD' ? '' : $text;
  close $client;
}
